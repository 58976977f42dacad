"""Questions about a partition are answered from its present state and the event log."""

from dataclasses import replace

from tidemark_operator.api.broker import BrokerControlState
from tidemark_operator.controller.core.explanations import MAX_EVENTS, Answer, explain
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.core.timeline import BrokerChanged, BrokerTurn, Cause
from tidemark_protocol.ids import BrokerEpoch, BrokerId, TopicId
from tidemark_protocol.partition_state import PartitionState

from tests.support.command_player import hear_all, pool_state, slice_of
from tests.support.controller_values import partition, topic

LED = partition("0@7 1@7 2@7", leader="0@7")


def answers(pool: PoolState, state: PartitionState) -> dict[str, str]:
    return {each.question: each.answer for each in explain(pool, topic(), state).answers}


def of(
    state: PartitionState, *, live: tuple[int, ...] = (0, 1, 2), fenced: tuple[int, ...] = ()
) -> tuple[PoolState, dict[str, str]]:
    pool = pool_state(slice_of(state), live=live, fenced=fenced)
    hear_all(pool)
    return pool, answers(pool, state)


def test_a_well_partition_says_who_leads_and_who_would_follow() -> None:
    _, found = of(LED)
    assert found["Why is broker 0 the leader?"].startswith("it leads under leader epoch 5 since")
    assert found["Is acks=all accepted?"] == (
        "yes: 3 of 3 replicas in sync, min.insync.replicas 2; still so after 1 failure"
    )
    assert found["What if broker 0 fails now?"] == "broker 1 is elected within a second"
    assert len(found) == 3


def test_a_fenced_replica_is_explained_by_its_fence() -> None:
    state = partition("0@7 1@7", leader="0@7")
    pool, found = of(state, live=(0, 1), fenced=(2,))
    assert found["Why is broker 2 not in sync?"] == (
        "broker 2 is fenced since before the events that this controller keeps"
    )
    assert "one more failure ends that" in found["Is acks=all accepted?"]
    pool.timeline.record(
        BrokerChanged(BrokerTurn.FENCED, BrokerId(2), BrokerEpoch(7), "session timeout", 1500)
    )
    assert answers(pool, state)["Why is broker 2 not in sync?"] == (
        "broker 2 is fenced: session timeout, last heartbeat 1500 ms ago; it may join again when"
        " it is active and has caught up"
    )


def test_an_election_is_explained_by_its_event() -> None:
    pool, _ = of(LED)
    now = partition("1@7 2@7", leader="1@7", leader_epoch=6, partition_epoch=10)
    record = pool.brokers[BrokerId(0)]
    pool.brokers[BrokerId(0)] = replace(record, state=BrokerControlState.FENCED)
    pool.explain(topic(), LED, now, Cause.EVALUATION, pool.eligibility(), pool.leader_counts())
    pool.timeline.record_slice(slice_of(LED), slice_of(now), [])
    explanation = explain(pool, topic(), now)
    assert [event.number for event in explanation.events] == [1]
    leader = explanation.answers[0]
    assert leader.question == "Why is broker 1 the leader?"
    assert leader.answer.startswith("orders-0: broker 1 leads under leader epoch 6, chosen:")
    assert leader.at_ms == 0
    absent = next(a for a in explanation.answers if a.question == "Why is broker 0 not in sync?")
    assert isinstance(absent, Answer) and absent.answer.startswith("broker 0 is fenced")


def test_acks_all_below_min_isr_names_whom_it_waits_for() -> None:
    _, found = of(partition("0@7", leader="0@7"))
    assert found["Why is acks=all rejected?"] == (
        "NOT_ENOUGH_REPLICAS: 1 of 3 replicas in sync, min.insync.replicas 2; it is accepted again"
        " when 1 of brokers 1, 2 are in sync; acks=1 and acks=0 are accepted meanwhile"
    )
    assert found["Why is broker 1 not in sync?"].startswith("it is active and catching up")


def test_without_a_leader_it_says_what_to_do() -> None:
    _, found = of(partition("", eligible="0@7", leader_epoch=6), live=(1, 2), fenced=(0,))
    assert "only brokers 0 are known to hold all" in found["Why is there no leader?"]
    assert found["Is acks=all accepted?"].startswith("no, nothing is: there is no leader")
    assert "What if broker -1 fails now?" not in found


def test_a_leader_that_nobody_can_follow_is_told_before_it_fails() -> None:
    _, found = of(partition("0@7", leader="0@7"))
    assert found["What if broker 0 fails now?"] == (
        "no leader can be elected without losing records: the partition waits for broker 0"
    )


def test_the_first_replica_is_told_when_leadership_returns() -> None:
    _, found = of(partition("0@7 1@7 2@7", leader="1@7"))
    assert found["Why is broker 0, the first replica, not the leader?"] == (
        "it is in sync: the next balance pass gives leadership back to it"
    )


def test_a_reassignment_names_the_replicas_that_it_waits_for() -> None:
    moving = partition("0@7 1@7", leader="0@7", replicas=(2, 0, 1), adding=(2,), removing=(1,))
    _, found = of(moving)
    assert found["Why is the reassignment not complete?"] == (
        "it completes when all of brokers 2, 0 are in sync; it waits for broker 2 (not in sync)"
    )


def test_events_of_a_former_topic_of_that_name_explain_nothing() -> None:
    pool, _ = of(LED)
    former = replace(slice_of(LED), topic=replace(topic(), topic_id=TopicId("former")))
    lost = replace(former, partitions=(partition("", leader_epoch=9, partition_epoch=12),))
    pool.timeline.record_slice(former, lost, [])
    explanation = explain(pool, topic(), LED)
    assert explanation.events == ()
    assert "since before" in explanation.answers[0].answer


def test_an_election_answers_however_much_happened_to_the_isr_since() -> None:
    pool, _ = of(LED)
    now = partition("1@7 2@7", leader="1@7", leader_epoch=6, partition_epoch=10)
    pool.timeline.record_slice(slice_of(LED), slice_of(now), [])
    shrunk = partition("1@7", leader="1@7", leader_epoch=6, partition_epoch=11)
    for _ in range(12):
        pool.timeline.record_slice(slice_of(now), slice_of(shrunk), [])
        pool.timeline.record_slice(slice_of(shrunk), slice_of(now), [])
    explanation = explain(pool, topic(), now)
    assert "broker 1 leads under leader epoch 6" in explanation.answers[0].answer
    assert len(explanation.events) == MAX_EVENTS
