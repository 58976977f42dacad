"""Decide what this broker does with a partition: by its state, the local log and the broker epoch.

An ISR or ELR entry says that this broker has what is committed. If the log that it means is gone,
or ended below its own high watermark, an empty or a short log in its place would look like that log
to all others from then on, and to this broker itself after a restart. So no role is applied until
the controller has removed the entry (rule S9).

A log is removed only by a state that does not name this broker, never because a push does not have
the partition (rule S12), and only by a state that is newer than the log: a slice restored from
before a move does not name a replica that joined by it (rule S17). A replica that leaves raises the
leader epoch (rule S30), so a log of that epoch or a later one was not left behind.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_protocol.controller_messages import BrokerState
from tidemark_protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch
from tidemark_protocol.partition_state import PartitionState


@dataclass(frozen=True, slots=True)
class LocalBroker:
    """This broker and its epoch, and what it knows of the others."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    brokers: Mapping[BrokerId, BrokerState]


@dataclass(frozen=True, slots=True)
class LocalLog:
    """What this broker has of a partition."""

    latest_epoch: LeaderEpoch | None = None  # None: there is no log
    # When it was opened, compared with its own checkpointed high watermark.
    ended_below_high_watermark: bool = False
    is_displaced: bool = False  # by a log of another topic of its name, in this process
    is_name_taken: bool = False  # by another topic, whose log a new one would rename aside

    @property
    def exists(self) -> bool:
        return self.latest_epoch is not None


@dataclass(frozen=True, slots=True)
class Lead:
    """Lead the partition: the state names this broker in its present epoch (rule S2)."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Follow the leader that the state names."""


@dataclass(frozen=True, slots=True)
class NoLeader:
    """Host a replica without a role: there is no leader, or it is an earlier epoch of this one."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Stop the role and keep the log."""

    reason: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the log."""

    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing until another state comes."""


@dataclass(frozen=True, slots=True)
class Reject:
    """Apply no role, and report the replica as failed: the controller removes the entry."""

    reason: str


Role = Lead | Follow | NoLeader
Assignment = Role | Idle | Remove | Wait | Reject


def assign(state: PartitionState, log: LocalLog, broker: LocalBroker) -> Assignment:
    """Return what to do by this state, which is the newest that this broker has."""
    if broker.broker_id not in state.replicas:
        if is_older_than_log(state, log):
            return Idle("an older state does not list it")
        return Remove("moved to other brokers")
    if log.is_name_taken and not log.exists:
        return Wait()
    if not is_complete(log) and needs_lost_log(state, log, broker):
        return Reject(
            f"broker {broker.broker_id} is in sync or eligible by a log that is missing here or"
            " not whole: an empty log begins once the broker is neither"
        )
    return role_in(state, broker)


def role_in(state: PartitionState, broker: LocalBroker) -> Role:
    """Return the role of a replica; an assignment to another broker epoch is none (S2)."""
    if state.leader == broker.broker_id and state.leader_broker_epoch == broker.broker_epoch:
        return Lead()
    if state.has_leader and state.leader != broker.broker_id:
        return Follow()
    return NoLeader()


# guard: erase-by-newer-state-only (S17)
def is_older_than_log(state: PartitionState, log: LocalLog) -> bool:
    """Return whether the state is older than the local log (S17, S30)."""
    return log.latest_epoch is not None and log.latest_epoch >= state.leader_epoch


# guard: short-log-is-not-whole (S9)
def is_complete(log: LocalLog) -> bool:
    """Return whether the log has what entries of this broker say that it has (S9)."""
    return log.exists and not log.ended_below_high_watermark


def needs_lost_log(state: PartitionState, log: LocalLog, broker: LocalBroker) -> bool:
    """Return whether an ISR or ELR entry means a log that is not here, or not complete (S9)."""
    members = state.in_sync_replicas + state.eligible_leaders
    is_named = any(member.broker_id == broker.broker_id for member in members)
    return (is_named and _was_displaced(log)) or names_earlier_epoch(state, broker)


# guard: displaced-log-is-not-empty (S9)
def _was_displaced(log: LocalLog) -> bool:
    """Return whether the entry may mean the displaced log: it is of this broker epoch (S12)."""
    return log.is_displaced


# guard: no-empty-log-for-earlier-life (S9)
def names_earlier_epoch(state: PartitionState, broker: LocalBroker) -> bool:
    """Return whether an ISR or ELR entry names an earlier epoch of this broker (S9)."""
    return any(
        member.broker_id == broker.broker_id and member.broker_epoch != broker.broker_epoch
        for member in state.in_sync_replicas + state.eligible_leaders
    )
