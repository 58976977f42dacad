"""Define the decisions of a controller command, which a command yields and `PoolLoop` performs.

A command is a generator: it decides by the pool's state, yields what is to be done next, and goes
on with the outcome. Each decision that writes is one durable step, so the order of a command's
writes is read from top to bottom, and a test plays a command without a store.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from tidemark_protocol.ids import BrokerId, TopicId

from tidemark_operator.api.broker import BrokerRecord
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.core.deleted_topics import Tombstone
from tidemark_operator.controller.core.eligibility import BrokerEligibility
from tidemark_operator.controller.core.views import StateChange

Result = TypeVar("Result")

# From what is stored to what is to be stored; its argument if there is nothing to write. It is
# called again when a write met another one, and reads the pool's state each time.
Decide = Callable[[PartitionSlice], PartitionSlice]


class Deferred(Exception):
    """An error: a write was not possible within its attempts; the decision is made again later."""


class NamespaceDeleted(Deferred):
    """An error: the pool's namespace is being deleted, so nothing will be stored for it again."""


@dataclass(frozen=True, slots=True)
class ChangeSlice:
    """Write one slice, given as last known. The command gets Deferred if that is not possible."""

    value: PartitionSlice
    decide: Decide


@dataclass(frozen=True, slots=True)
class ChangeSlices:
    """Write slices by name, concurrently. The outcome tells which were written."""

    changes: Mapping[str, Decide]


@dataclass(frozen=True, slots=True)
class SaveBroker:
    """Store a Broker object; its record counts once it is stored."""

    record: BrokerRecord


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Evaluate the slices of these topics and write those that change; None: of all topics.

    Slices are looked at a few at a time, and each is one compare-and-set.
    """

    topics: tuple[TopicId, ...] | None = None
    # These count instead of what is known of their brokers.
    overriding: tuple[BrokerEligibility, ...] = ()


@dataclass(frozen=True, slots=True)
class EvaluateAndSave:
    """Evaluate all slices and write these brokers' objects, concurrently.

    The outcome is of the slices alone: the objects only inform people, and a tick writes those that
    are deferred. `leaving` are the brokers just fenced.
    """

    broker_ids: tuple[BrokerId, ...]
    leaving: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True)
class EvaluateLater:
    """Have the next tick evaluate all slices."""


class Turn(Enum):
    """Release the present turn of the pool and take another: a command's way to let others in.

    Only for commands that hold their topic (`PoolLoop.run_on_topic`), which begin without a turn.
    What a command decides after it, it decides in the new turn.
    """

    NONE = "none"
    SHARED = "shared"  # with others that change other topics
    ALONE = "alone"


@dataclass(frozen=True, slots=True)
class CreateSlice:
    """Create a slice. The command gets AlreadyExists, Rejected or Deferred."""

    value: PartitionSlice


@dataclass(frozen=True, slots=True)
class FindSlices:
    """List the stored slices of a topic; needs no turn, as the list only says what to read."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class ReadSlice:
    """Read a slice that is not loaded; the outcome is empty if it is gone or another topic's."""

    value: PartitionSlice


@dataclass(frozen=True, slots=True)
class LoadSlice:
    """Serve a slice that was read; the next tick evaluates it."""

    value: PartitionSlice


@dataclass(frozen=True, slots=True)
class ConfirmBroker:
    """Read a Broker object, in case a deposed controller registered a later epoch (0083)."""

    record: BrokerRecord


@dataclass(frozen=True, slots=True)
class StoreTombstone:
    """Store a deletion record, then tell brokers of it. The command gets Deferred."""

    tombstone: Tombstone


@dataclass(frozen=True, slots=True)
class DeleteSlices:
    """Delete slices of deleted topics, concurrently; those that fail stay for the next sweep."""

    values: tuple[PartitionSlice, ...]


@dataclass(frozen=True, slots=True)
class RemoveTombstones:
    """Remove deletion records, concurrently; those that fail stay for the next sweep."""

    tombstones: tuple[Tombstone, ...]


@dataclass(frozen=True, slots=True)
class UnsettleSlices:
    """Read stale slices again before anything is decided about them, and report them (S17)."""

    values: tuple[PartitionSlice, ...]


@dataclass(frozen=True, slots=True)
class ReportChange:
    """Report a change to the reconcilers."""

    change: StateChange


@dataclass(frozen=True, slots=True)
class NotifyBrokers:
    """Push to the brokers what has changed for them, at the end of this turn of the loop."""


SliceAccess = (
    ChangeSlice
    | ChangeSlices
    | CreateSlice
    | FindSlices
    | ReadSlice
    | StoreTombstone
    | DeleteSlices
    | RemoveTombstones
)
Evaluation = Evaluate | EvaluateAndSave | EvaluateLater
Notification = ReportChange | NotifyBrokers
Decision = (
    SliceAccess
    | LoadSlice
    | UnsettleSlices
    | SaveBroker
    | ConfirmBroker
    | Evaluation
    | Notification
    | Turn
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Tell what is stored after a decision."""

    # By name, as they are stored now; not those that are gone or deferred.
    stored: Mapping[str, PartitionSlice] = field(default_factory=dict)
    is_complete: bool = True  # nothing was deferred


Steps = Generator[Decision, Outcome, Result]
