"""Play a controller command without a store: every write succeeds at once, or is deferred."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from tidemark_operator.api.broker import BrokerControlState
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.core.decision import (
    ChangeSlice,
    ChangeSlices,
    Decide,
    Decision,
    Deferred,
    Outcome,
    SaveBroker,
    Steps,
)
from tidemark_operator.controller.core.metadata_image import MetadataImage
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch
from tidemark_protocol.partition_state import PartitionState

from tests.support.broker_records import a_record
from tests.support.controller_values import topic

POOL = "shop/default"
SLICE = "orders-0"

Result = TypeVar("Result")


@dataclass
class Played(Generic[Result]):
    """What a command did: its decisions in order, the slices it wrote, and what it returned."""

    decisions: list[Decision] = field(default_factory=list)
    written: list[PartitionSlice] = field(default_factory=list)
    returned: list[Result] = field(default_factory=list)
    error: Exception | None = None

    @property
    def result(self) -> Result:
        if self.error is not None:
            raise self.error
        return self.returned[0]

    @property
    def kinds(self) -> list[type]:
        return [type(decision) for decision in self.decisions]


def pool_state(
    *slices: PartitionSlice, live: Collection[int] = (0, 1, 2), fenced: Collection[int] = ()
) -> PoolState:
    """Of brokers in epoch 7, all of which have registered with this controller."""
    epoch = ControllerEpoch(3)
    state = PoolState(POOL, epoch, MetadataImage(epoch, deleted_retained=10))
    for number in (*live, *fenced):
        record = replace(
            a_record(BrokerId(number)),
            broker_epoch=BrokerEpoch(7),
            state=BrokerControlState.ACTIVE if number in live else BrokerControlState.FENCED,
        )
        state.brokers[record.broker_id] = record
        state.soft_state_of(record.broker_id).report_version = 0
    for value in slices:
        state.record_durable(value, version=0)
    return state


def slice_of(
    *partitions: PartitionState, name: str = SLICE, is_retained: bool = False
) -> PartitionSlice:
    return PartitionSlice(
        pool=POOL,
        name=name,
        topic_object="orders",
        topic=topic(),
        deletion_policy="Retain",
        is_retained=is_retained,
        controller_epoch=ControllerEpoch(3),
        partitions=partitions,
    )


def play(
    state: PoolState, steps: Steps[Result], *, deferred: Collection[str] = ()
) -> Played[Result]:
    """Perform a command's decisions on the state alone.

    `deferred` are the slices, and "broker 1", whose writes are not possible.
    """
    played: Played[Result] = Played()
    outcome: Outcome | None = None
    error: Exception | None = None
    while True:
        try:
            if error is not None:
                decision = steps.throw(error)
            else:
                decision = next(steps) if outcome is None else steps.send(outcome)
        except StopIteration as end:
            played.returned.append(end.value)
            return played
        except Exception as raised:
            played.error = raised
            return played
        played.decisions.append(decision)
        outcome, error = Outcome(), None
        try:
            outcome = _performed(state, decision, played.written, deferred)
        except Deferred as raised:
            error = raised


def _performed(
    state: PoolState,
    decision: Decision,
    written: list[PartitionSlice],
    deferred: Collection[str],
) -> Outcome:
    match decision:
        case ChangeSlice(value, decide):
            if value.name in deferred:
                raise Deferred(f"slice {value.name}: not settled")
            stored = _changed(state, value.name, decide, written)
            return Outcome({} if stored is None else {stored.name: stored})
        case ChangeSlices(changes):
            found = {
                name: stored
                for name, decide in changes.items()
                if name not in deferred
                if (stored := _changed(state, name, decide, written)) is not None
            }
            return Outcome(found, is_complete=set(deferred).isdisjoint(changes))
        case SaveBroker(record):
            if f"broker {record.broker_id}" in deferred:
                raise Deferred(f"broker {record.broker_id}: not written")
            state.brokers[record.broker_id] = record
    return Outcome()


def _changed(
    state: PoolState, name: str, decide: Decide, written: list[PartitionSlice]
) -> PartitionSlice | None:
    value = state.slices.get(name)
    if value is None:
        return None
    after = decide(value)
    if after is not value:
        written.append(after)
        state.record_durable(after, version=0)
    return after
