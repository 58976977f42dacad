"""`tidemark events` prints the controller's latest decisions, of a topic or a broker."""

from typing import Any

from tests.unit.cli.fake_controller import FakeController, rejection, run_command

AT_MS = 1_795_807_798_934


def event(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "number": number,
        "atMs": AT_MS + number,
        "kind": "BrokerActive",
        "warning": False,
        "sentence": f"event {number}",
    } | fields


def test_the_latest_events_are_printed_oldest_first() -> None:
    fake = FakeController(events=[event(number) for number in range(1, 5)])
    said = run_command(fake, "events", "--last", "2").out.splitlines()
    assert said == [
        "19:29:58.937 BrokerActive  event 3",
        "19:29:58.938 BrokerActive  event 4",
    ]
    assert run_command(fake, "events", "--last", "0").out == ""


def test_more_events_than_a_page_are_read_page_by_page() -> None:
    fake = FakeController(events=[event(number) for number in range(1, 2502)])
    said = run_command(fake, "events", "--last", "9000").out.splitlines()
    assert len(said) == 2501
    assert [query["after"] for query in fake.queries] == ["0", "1000", "2000"]


def test_the_controller_is_asked_for_the_chosen_topic_partition_and_broker() -> None:
    fake = FakeController()
    run_command(fake, "events", "orders", "3", "--broker", "1", "--pool", "default")
    (query,) = fake.queries
    assert query == {
        "pool": "default/default",
        "topic": "orders",
        "partition": "3",
        "broker": "1",
        "after": "0",
        "limit": "1000",
    }


def test_a_negative_count_is_bad_usage() -> None:
    assert "--last from 0 on" in rejection(FakeController(), "events", "--last", "-1").sentence
