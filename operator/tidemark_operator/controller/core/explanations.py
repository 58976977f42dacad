"""Answer why a partition is as it is: its leader, its ISR, acks=all, a move, the next leader.

Answers are made from the present state; the event log adds when and why it came to that.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import PartitionState, TopicState
from tidemark_protocol.topic_configs import REPLICA_LAG_TIME_MAX_MS, integer_of

from tidemark_operator.controller.core.elections import partition_after_election
from tidemark_operator.controller.core.eligibility import Eligibility
from tidemark_operator.controller.core.event_texts import (
    ELIGIBLE_LEADER,
    FENCED,
    IN_SYNC,
    kind_of,
    sentence_of,
    standing,
)
from tidemark_operator.controller.core.leaderless_reasons import leaderless_sentence
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.core.reassignment import is_moving, target_of
from tidemark_operator.controller.core.timeline import (
    BrokerChanged,
    Event,
    PartitionChanged,
    PartitionsCreated,
)

MAX_EVENTS = 10


@dataclass(frozen=True, slots=True)
class Answer:
    question: str
    answer: str
    at_ms: int | None = None  # of the event that the answer rests on


@dataclass(frozen=True, slots=True)
class Explanation:
    topic: TopicState
    partition: PartitionState
    answers: tuple[Answer, ...]
    events: tuple[Event, ...]  # of the partition, newest first


def explain(pool: PoolState, topic: TopicState, partition: PartitionState) -> Explanation:
    eligibility = pool.eligibility()
    number = partition.partition

    def concerns(event: Event) -> bool:
        fact = event.fact
        return (
            isinstance(fact, PartitionChanged)
            and fact.topic.topic_id == topic.topic_id
            and fact.after.partition == number
        )

    # All of them: the one that an answer rests on may be older than those that are shown.
    events = pool.timeline.latest(concerns, pool.timeline.newest)
    answers = [
        _leader(pool, topic, partition, events),
        *_absent(pool, topic, partition, eligibility, events),
        _acks_all(partition),
        *_preferred(topic, partition, eligibility),
        *_move(topic, partition, eligibility),
        *_next_leader(pool, topic, partition, eligibility),
    ]
    return Explanation(topic, partition, tuple(answers), events[:MAX_EVENTS])


def _leader(
    pool: PoolState, topic: TopicState, partition: PartitionState, events: tuple[Event, ...]
) -> Answer:
    latest = next((event for event in events if _made_leader(event, partition)), None)
    if not partition.has_leader:
        replica = (topic.topic_id, partition.partition)
        eligibility = pool.eligibility()
        evidence = pool.evidence(replica, partition, eligibility)
        sentence = leaderless_sentence(topic, partition, eligibility, evidence)
        return Answer("Why is there no leader?", sentence, None if latest is None else latest.at_ms)
    question = f"Why is broker {partition.leader} the leader?"
    if latest is None and (created := _created(pool, topic, partition)) is not None:
        return Answer(
            question,
            f"it leads since the partition was created: {sentence_of(created)}, and the first"
            " active replica leads",
            created.at_ms,
        )
    if latest is None:
        return Answer(
            question,
            f"it leads under leader epoch {partition.leader_epoch} since before the events that"
            " this controller keeps; it is active and in sync, so it stays leader",
        )
    return Answer(question, sentence_of(latest), latest.at_ms)


def _made_leader(event: Event, partition: PartitionState) -> bool:
    """Return whether the event is of the change that brought the present leader, or none."""
    change = event.fact
    return (
        isinstance(change, PartitionChanged)
        and change.after.leader_epoch == partition.leader_epoch
        and change.before.leader_epoch < partition.leader_epoch
    )


def _created(pool: PoolState, topic: TopicState, partition: PartitionState) -> Event | None:
    """Return the event of its creation, if its leader is the first one still."""

    def creates(event: Event) -> bool:
        return (
            isinstance(event.fact, PartitionsCreated)
            and event.fact.topic.topic_id == topic.topic_id
            and any(
                each.partition == partition.partition
                and each.leader_epoch == partition.leader_epoch
                for each in event.fact.partitions
            )
        )

    return next(iter(pool.timeline.latest(creates, 1)), None)


def _absent(
    pool: PoolState,
    topic: TopicState,
    partition: PartitionState,
    eligibility: Eligibility,
    events: tuple[Event, ...],
) -> Iterator[Answer]:
    in_sync = partition.in_sync_ids
    for broker_id in partition.replicas:
        if broker_id in in_sync:
            continue
        removal = next((each for each in events if _removes(each, broker_id)), None)
        why = standing(topic, partition, eligibility, broker_id)
        text = {
            FENCED: _why_fenced(pool, broker_id),
            "not in sync": _why_behind(topic, partition),
            ELIGIBLE_LEADER: f"{_why_behind(topic, partition)}; it has every committed record,"
            " so it may be elected while no in-sync replica is left",
        }.get(why, f"{why}: it joins again when that is over and it has caught up")
        if removal is not None and why != FENCED:
            text += f". It left with: {sentence_of(removal)}"
        yield Answer(
            f"Why is broker {broker_id} not in sync?",
            text,
            removal.at_ms if removal is not None else pool.timeline.fenced_at_ms(broker_id),
        )


def _removes(event: Event, broker_id: BrokerId) -> bool:
    fact = event.fact
    return (
        isinstance(fact, PartitionChanged)
        and broker_id in fact.before.in_sync_ids
        and broker_id not in fact.after.in_sync_ids
    )


def _why_fenced(pool: PoolState, broker_id: BrokerId) -> str:
    def concerns(event: Event) -> bool:
        return isinstance(event.fact, BrokerChanged) and event.broker_id == broker_id

    events = pool.timeline.latest(concerns, MAX_EVENTS)
    fence = next((each for each in events if kind_of(each).startswith("BrokerFenced")), None)
    if fence is None:
        return f"broker {broker_id} is fenced since before the events that this controller keeps"
    return f"{sentence_of(fence)}; it may join again when it is active and has caught up"


def _why_behind(topic: TopicState, partition: PartitionState) -> str:
    limit = integer_of(REPLICA_LAG_TIME_MAX_MS, topic.config)
    return (
        f"it is active and catching up: leader {partition.leader} proposes it for the ISR as soon"
        f" as it has all that the leader has (a member may be behind for"
        f" {REPLICA_LAG_TIME_MAX_MS.name} = {limit} ms)"
        if partition.has_leader
        else "it is active, but without a leader no replica can catch up"
    )


def _acks_all(partition: PartitionState) -> Answer:
    in_sync, least = len(partition.in_sync_replicas), partition.min_insync_replicas
    state = f"{in_sync} of {len(partition.replicas)} replicas in sync, min.insync.replicas {least}"
    if not partition.has_leader:
        return Answer("Is acks=all accepted?", f"no, nothing is: there is no leader ({state})")
    if in_sync >= least:
        more = in_sync - least
        rest = (
            "one more failure ends that"
            if more == 0
            else f"still so after {more} failure{'' if more == 1 else 's'}"
        )
        return Answer("Is acks=all accepted?", f"yes: {state}; {rest}")
    missing = [each for each in partition.replicas if each not in partition.in_sync_ids]
    names = ", ".join(map(str, missing))
    wanted = f"{least - in_sync} of brokers {names} are"
    if len(missing) == least - in_sync:
        wanted = f"broker {names} is" if len(missing) == 1 else f"brokers {names} are"
    return Answer(
        "Why is acks=all rejected?",
        f"NOT_ENOUGH_REPLICAS: {state}; it is accepted again when {wanted} in sync; acks=1 and"
        " acks=0 are accepted meanwhile",
    )


def _preferred(
    topic: TopicState, partition: PartitionState, eligibility: Eligibility
) -> Iterator[Answer]:
    first = partition.replicas[0]
    if not partition.has_leader or partition.leader == first:
        return
    why = standing(topic, partition, eligibility, first)
    text = (
        "it is in sync: the next balance pass gives leadership back to it"
        if why == IN_SYNC
        else f"{why}; leadership returns after it is in sync again"
    )
    yield Answer(f"Why is broker {first}, the first replica, not the leader?", text)


def _move(
    topic: TopicState, partition: PartitionState, eligibility: Eligibility
) -> Iterator[Answer]:
    if not is_moving(partition):
        return
    waiting = [
        f"broker {b} ({standing(topic, partition, eligibility, b)})"
        for b in target_of(partition)
        if b not in partition.in_sync_ids
    ]
    target = ", ".join(map(str, target_of(partition)))
    text = (
        f"it completes when all of brokers {target} are in sync; it waits for {', '.join(waiting)}"
        if waiting
        else f"all of brokers {target} are in sync: it completes now"
    )
    yield Answer("Why is the reassignment not complete?", text)


def _next_leader(
    pool: PoolState, topic: TopicState, partition: PartitionState, eligibility: Eligibility
) -> Iterator[Answer]:
    """Tell who would lead if the leader's broker failed now."""
    leader = eligibility.of(partition.leader)
    if not partition.has_leader or leader is None:
        return
    failed = pool.eligibility(replace(leader, is_live=False))
    after = partition_after_election(
        topic,
        partition,
        failed,
        leader_counts=pool.leader_counts(),
        evidence=pool.evidence((topic.topic_id, partition.partition), partition, failed),
    ).partition
    text = (
        f"broker {after.leader} is elected within a second"
        if after.has_leader
        else "no leader can be elected without losing records: the partition waits for"
        f" broker {partition.leader}"
    )
    yield Answer(f"What if broker {partition.leader} fails now?", text)
