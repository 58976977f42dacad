"""Decide how a partition begins that its topic's slices do not have yet.

A new one begins as in Kafka. But a slice restored from before its topic grew does not have
partitions whose records are on brokers' disks (S17), and logs of epoch 0 do not show that it is
old. So a partition of which any broker reported a log, or of which a state was durable once, begins
as rebuilt: above all known epochs, with no replica in sync, to be led by the longest log of all
(S14). A missing log counts only after each live broker reported to this controller.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark_protocol.ids import (
    NO_BROKER,
    NO_EPOCH,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import Member, PartitionState, TopicState

from tidemark_operator.api.unclean_election import UncleanCause, UncleanElection
from tidemark_operator.controller.core.partition_change import effective_min_insync
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.core.stale_slices import MinimumEpochs, holders_of, rebuilt

NOTHING_KNOWN = MinimumEpochs(
    LeaderEpoch(NO_EPOCH), PartitionEpoch(NO_EPOCH), recorded_at_version=0
)


class NoLiveReplica(Exception):
    """An error: a new partition would have no live broker, or must wait for a broker's report."""


@dataclass(frozen=True, slots=True)
class NewPartition:
    partition: PartitionState
    unclean_election: UncleanElection | None = None  # it has a past


@dataclass(frozen=True, slots=True)
class MissingReports:
    """The live brokers that have not reported their logs since that image version."""

    since_version: int
    brokers: tuple[BrokerId, ...]


def unheard(state: PoolState, topic_id: TopicId, numbers: Iterable[int]) -> MissingReports | None:
    """Return the missing reports, or None if all live brokers have reported these partitions."""
    floors = (state.held.minimum_epochs_of((topic_id, number)) for number in numbers)
    since = max((floor.recorded_at_version for floor in floors if floor is not None), default=0)
    said = state.reports_from(since)
    live = (broker_id for broker_id, record in sorted(state.brokers.items()) if record.is_live)
    brokers = tuple(broker_id for broker_id in live if broker_id not in said)
    return MissingReports(since, brokers) if brokers else None


class Beginning:
    """The start of new partitions of one topic, given the brokers at one instant."""

    def __init__(self, state: PoolState, topic: TopicState) -> None:
        self._state = state
        self._topic = topic
        self._eligibility = state.eligibility()
        self._reports = state.reports_from(NO_EPOCH)

    def of(self, number: int, replicas: tuple[BrokerId, ...]) -> NewPartition:
        """Return how the partition begins.

        Raises NoLiveReplica.
        """
        replica = (self._topic.topic_id, number)
        floor = self._state.held.minimum_epochs_of(replica)
        holders = holders_of(replica, self._reports)
        if floor is not None or holders:
            empty = _state(self._topic, number, replicas, ())
            after = rebuilt(empty, floor or NOTHING_KNOWN, holders)
            return NewPartition(
                after, UncleanElection(number, UncleanCause.RESTORED, after.leader_epoch)
            )
        return NewPartition(self._as_new(number, replicas))

    def check(self, number: int, replicas: tuple[BrokerId, ...]) -> None:
        """Raise NoLiveReplica if `of` would."""
        replica = (self._topic.topic_id, number)
        if any(self._eligibility.is_active(broker_id, replica) for broker_id in replicas):
            return
        if self._state.held.minimum_epochs_of(replica) is None and not holders_of(
            replica, self._reports
        ):
            raise self._none_is_active(number, replicas)

    def _as_new(self, number: int, replicas: tuple[BrokerId, ...]) -> PartitionState:
        """Begin as Kafka does: the active replicas are in sync, the first leads, epochs are 0."""
        in_sync = tuple(
            Member(broker_id, self._state.brokers[broker_id].broker_epoch)
            for broker_id in replicas
            if self._eligibility.is_active(broker_id, (self._topic.topic_id, number))
        )
        if not in_sync:
            raise self._none_is_active(number, replicas)
        return _state(self._topic, number, replicas, in_sync)

    def _none_is_active(self, number: int, replicas: tuple[BrokerId, ...]) -> NoLiveReplica:
        return NoLiveReplica(
            f"topic {self._topic.topic} partition {number}: none of brokers {list(replicas)} is"
            " active"
        )


def _state(
    topic: TopicState, number: int, replicas: tuple[BrokerId, ...], in_sync: tuple[Member, ...]
) -> PartitionState:
    leader = in_sync[0] if in_sync else Member(NO_BROKER, BrokerEpoch(NO_EPOCH))
    return PartitionState(
        partition=number,
        replicas=replicas,
        leader=leader.broker_id,
        leader_broker_epoch=leader.broker_epoch,
        leader_epoch=LeaderEpoch(0),
        in_sync_replicas=in_sync,
        eligible_leaders=(),
        partition_epoch=PartitionEpoch(0),
        min_insync_replicas=effective_min_insync(topic),
    )
