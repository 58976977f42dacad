"""Kubernetes Events of the controller's decisions: grouped, deduplicated, within a budget."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tidemark_operator.api.kinds import EVENT, TOPIC, Object
from tidemark_operator.controller.core.timeline import BrokerChanged, BrokerTurn, Event
from tidemark_operator.manager.event_recorder import (
    BUDGET,
    BUDGET_MS,
    MAX_MESSAGE,
    SAME_EVENT_MS,
    Budgets,
    EventRecorder,
    Subject,
    reports_of,
)
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch

from tests.support.controller_harness import POOL, FakeClock, Harness
from tests.support.waiting import HANG_SECONDS

ORDERS = Subject(TOPIC, "shop", "orders")


def fenced(number: int, broker: int = 1, reason: str = "session timeout") -> Event:
    return Event(
        number,
        1000 * number,
        BrokerChanged(BrokerTurn.FENCED, BrokerId(broker), BrokerEpoch(7), reason),
    )


def run(scenario: Callable[[Harness, EventRecorder], Awaitable[None]]) -> None:
    async def whole() -> None:
        harness = await Harness().start(3)
        await harness.create(partitions=6)
        topic: Object = {
            "apiVersion": TOPIC.api_version,
            "kind": TOPIC.kind,
            "metadata": {"namespace": "shop", "name": "orders"},
        }
        await harness.store.create(TOPIC, topic)
        recorder = EventRecorder(harness.store, harness.service, now_ms=harness.clock.now_ms)
        await recorder.record()
        await scenario(harness, recorder)

    asyncio.run(asyncio.wait_for(whole(), HANG_SECONDS))


def stored(harness: Harness, reason: str, of: str = "orders") -> list[dict[str, Any]]:
    return [
        item
        for (kind, _, _), item in harness.store.objects.items()
        if kind == "Event" and item["reason"] == reason and item["involvedObject"]["name"] == of
    ]


def test_events_of_one_object_and_reason_are_one_report() -> None:
    events = [fenced(1), fenced(2), fenced(3, broker=2)]
    first, second = reports_of(POOL, events, lambda _: "")
    assert (first.subject.name, first.count, first.first_ms, first.last_ms) == (
        "default-1",
        2,
        1000,
        2000,
    )
    assert first.text.endswith("session timeout (and 1 more, see `tidemark events`)")
    assert (second.subject.name, second.count, second.is_warning) == ("default-2", 1, True)


def test_a_suspicion_is_no_event_of_kubernetes() -> None:
    turn = BrokerChanged(BrokerTurn.SUSPECTED, BrokerId(1), BrokerEpoch(7))
    assert reports_of(POOL, [Event(1, 1, turn)], lambda _: "") == []


def test_a_message_ends_where_kubernetes_takes_no_more() -> None:
    (report,) = reports_of(POOL, [fenced(1, reason="x" * 5000), fenced(2)], lambda _: "")
    assert len(report.text) == MAX_MESSAGE and report.text.endswith("`tidemark events`)")


def test_a_kill_is_an_event_of_the_broker_and_one_of_each_topic() -> None:
    async def scenario(harness: Harness, recorder: EventRecorder) -> None:
        await harness.kill(harness.brokers[0])
        await recorder.record()
        (fence,) = stored(harness, "BrokerFenced", of="default-0")
        assert fence["type"] == "Warning"
        assert fence["message"].startswith("broker 0 is fenced: heartbeat connection closed")
        (election,) = stored(harness, "LeaderElected")
        assert (election["count"], election["type"]) == (2, "Normal")
        uid = harness.store.objects["Topic", "shop", "orders"]["metadata"]["uid"]
        assert election["involvedObject"]["uid"] == uid
        (shrink,) = stored(harness, "IsrShrunk")
        assert shrink["count"] == 4

    run(scenario)


def test_the_same_reason_soon_after_raises_the_count_of_its_event() -> None:
    async def scenario(harness: Harness, recorder: EventRecorder) -> None:
        await harness.kill(harness.brokers[0])
        await recorder.record()
        await harness.kill(harness.brokers[1])
        await recorder.record()
        (election,) = stored(harness, "LeaderElected")
        assert election["count"] > 2
        harness.clock.ms += SAME_EVENT_MS + 1
        await recorder.record()
        assert len(stored(harness, "LeaderElected")) == 1

    run(scenario)


def test_an_event_that_somebody_deleted_is_created_again() -> None:
    async def scenario(harness: Harness, recorder: EventRecorder) -> None:
        await harness.kill(harness.brokers[0])
        await recorder.record()
        (election,) = stored(harness, "LeaderElected")
        await harness.store.delete(EVENT, "shop", election["metadata"]["name"])
        await harness.kill(harness.brokers[1])
        await recorder.record()
        assert len(stored(harness, "LeaderElected")) == 1

    run(scenario)


def test_a_store_that_takes_no_events_stops_nothing() -> None:
    async def scenario(harness: Harness, recorder: EventRecorder) -> None:
        harness.store.faults["Event"] = ["refused"] * 50
        await harness.kill(harness.brokers[0])
        await recorder.record()
        assert stored(harness, "LeaderElected") == []

    run(scenario)


def test_another_term_is_read_from_its_first_event_on() -> None:
    async def scenario(harness: Harness, recorder: EventRecorder) -> None:
        await harness.service.load(ControllerEpoch(2))
        await recorder.record()
        assert recorder._read_to == {POOL: 1}

    run(scenario)


def test_an_object_has_a_budget_that_returns_with_time() -> None:
    clock, budgets = FakeClock(), Budgets()
    taken = [budgets.take(ORDERS, clock.ms) for _ in range(BUDGET + 1)]
    assert taken == [True] * BUDGET + [False]
    assert budgets.take(Subject(TOPIC, "shop", "other"), clock.ms)
    clock.ms += BUDGET_MS
    assert [budgets.take(ORDERS, clock.ms) for _ in range(2)] == [True, False]


def test_a_topic_has_no_object_once_leadership_is_lost() -> None:
    """A report that was under way asks for it; it must not end the process."""

    async def scenario(harness: Harness, _: EventRecorder) -> None:
        topic_id = harness.service.topics(POOL)[0].topic.topic_id
        assert harness.service.topic_object(POOL, topic_id) == "orders"
        await harness.service.step_down()
        assert harness.service.topic_object(POOL, topic_id) == ""

    run(scenario)
