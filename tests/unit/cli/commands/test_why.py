"""`tidemark why` prints each answer below its question, and the partition's latest events."""

from typing import Any

from tests.unit.cli.fake_controller import (
    FakeController,
    pool_object,
    rejection,
    run_command,
    topic_object,
)

AT_MS = 1_795_807_798_934
WHY: dict[str, Any] = {
    "topic": "orders",
    "partition": 2,
    "leader": 1,
    "leaderEpoch": 6,
    "replicas": [0, 1],
    "isr": [1],
    "minIsr": 1,
    "answers": [
        {"question": "Why is broker 1 the leader?", "answer": "it was chosen", "atMs": AT_MS},
        {"question": "Is acks=all accepted?", "answer": "yes", "atMs": None},
    ],
    "events": [{"atMs": AT_MS, "kind": "LeaderElected", "sentence": "broker 1 leads"}],
}


def controller(**spec: Any) -> FakeController:
    found = FakeController(why=WHY)
    found.objects["topics"] = [topic_object("orders", **spec)]
    return found


def test_answers_stand_below_their_questions_with_the_time_of_the_event() -> None:
    fake = controller()
    said = run_command(fake, "why", "orders", "2").out.splitlines()
    assert said[:7] == [
        "orders-2: leader 1, epoch 6, ISR 1 of replicas 0, 1, min ISR 1",
        "",
        "Why is broker 1 the leader? (19:29:58.934)",
        "  it was chosen",
        "",
        "Is acks=all accepted?",
        "  yes",
    ]
    assert said[-1] == "  19:29:58.934  LeaderElected  broker 1 leads"
    assert fake.queries == [{"pool": "default/default", "topic": "orders", "partition": "2"}]


def test_a_topic_is_named_as_clients_or_as_kubernetes_name_it() -> None:
    fake = controller(topicName="Orders_A", brokerPool="default")
    for name in ("orders", "Orders_A"):
        run_command(fake, "why", name)
    assert [query["topic"] for query in fake.queries] == ["Orders_A", "Orders_A"]


def test_open_conditions_of_topic_and_pool_say_what_a_roll_waits_for() -> None:
    fake = controller()
    waiting = {
        "type": "Updated",
        "status": "False",
        "reason": "Waiting",
        "message": "brokers 1 have an older pod template; waiting: broker 0 is away",
    }
    pool = pool_object()
    pool["status"] = {"observedGeneration": 1, "conditions": [waiting]}
    fake.objects["brokerpools"] = [pool]
    assert "waiting: broker 0 is away" in run_command(fake, "why", "orders").out


def test_control_characters_of_a_topic_are_made_visible() -> None:
    fake = controller()
    fake.why = WHY | {"answers": [{"question": "a\x1b[31m", "answer": "b\x07", "atMs": None}]}
    said = run_command(fake, "why", "orders").out
    assert "\x1b" not in said and "\x07" not in said


def test_a_standby_is_reported_with_the_leader_that_it_names() -> None:
    fake = controller()
    fake.is_standby = True
    assert rejection(fake, "why", "orders").sentence == "this operator is on standby: ask x:8070"


def test_missing_partition_is_not_found_like_any_other() -> None:
    fake = controller()
    fake.why = {}
    failed = rejection(fake, "why", "orders", "9")
    assert failed.sentence == "partition orders-9 not found: expected 0 to 2"
    assert failed.exit_code == 1
