"""Play a controller command without a store: every write succeeds at once, or is deferred."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from tidemark_operator.api.broker import BrokerControlState
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.core.decision import (
    ChangeSlice,
    ChangeSlices,
    CreateSlice,
    Decide,
    Decision,
    Deferred,
    DeleteSlices,
    FindSlices,
    LoadSlice,
    Outcome,
    ReadSlice,
    RemoveTombstones,
    SaveBroker,
    Steps,
    StoreTombstone,
)
from tidemark_operator.controller.core.metadata_image import MetadataImage
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.core.sessions import Sessions
from tidemark_operator.controller.core.settings import ControllerSettings
from tidemark_operator.controller.core.timeline import Timeline
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
    *slices: PartitionSlice,
    live: Collection[int] = (0, 1, 2),
    fenced: Collection[int] = (),
    controller_epoch: int = 3,
) -> PoolState:
    """Of brokers in epoch 7, all of which have registered with this controller."""
    epoch = ControllerEpoch(controller_epoch)
    state = PoolState(
        POOL,
        epoch,
        MetadataImage(epoch, deleted_retained=10),
        Sessions(ControllerSettings()),
        Timeline(lambda: 0),
    )
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


def hear_all(pool: PoolState) -> None:
    """Have all brokers apply the image and report their logs after that: they hold none."""
    for broker_id in pool.brokers:
        notes = pool.soft_state_of(broker_id)
        notes.applied_controller_epoch = pool.controller_epoch
        notes.applied_version = notes.report_version = pool.image.version
        notes.report = {}


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
    pool: PoolState,
    steps: Steps[Result],
    *,
    stored: Iterable[PartitionSlice] = (),
    deferred: Collection[str] = (),
) -> Played[Result]:
    """Perform a command's decisions on the state alone.

    `stored` are slices that are in the store and not loaded. `deferred` are the slices, deletion
    records and "broker 1" whose writes are not possible.
    """
    player = _Player(pool, {value.name: value for value in stored}, deferred)
    played: Played[Result] = Played(written=player.written)
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
            outcome = player.perform(decision)
        except Deferred as raised:
            error = raised


class _Player:
    def __init__(
        self, pool: PoolState, stored: dict[str, PartitionSlice], deferred: Collection[str]
    ) -> None:
        self._pool = pool
        self._stored = stored
        self._deferred = deferred
        self.written: list[PartitionSlice] = []

    def perform(self, decision: Decision) -> Outcome:
        pool = self._pool
        match decision:
            case ChangeSlice(value, decide):
                self._check(value.name)
                return self._changed({value.name: decide})
            case ChangeSlices(changes):
                return self._changed(changes)
            case CreateSlice(value):
                self._check(value.name)
                self._write(value)
            case FindSlices():
                return Outcome(self._stored)
            case ReadSlice(value):
                return Outcome({value.name: self._stored[value.name]})
            case LoadSlice(value):
                pool.record_durable(value, version=0)
            case SaveBroker(record):
                self._check(f"broker {record.broker_id}")
                pool.brokers[record.broker_id] = record
            case StoreTombstone(tombstone):
                self._check(tombstone.name)
                pool.image.delete(tombstone.topic_state)
                pool.tombstones[tombstone.topic_id] = (tombstone, pool.image.version)
            case DeleteSlices(values):
                for value in values:
                    if value.name not in self._deferred:
                        del pool.leftovers[value.name]
            case RemoveTombstones(tombstones):
                for tombstone in tombstones:
                    del pool.tombstones[tombstone.topic_id]
        return Outcome()

    def _check(self, name: str) -> None:
        if name in self._deferred:
            raise Deferred(f"{name}: not settled")

    def _changed(self, changes: Mapping[str, Decide]) -> Outcome:
        found = {}
        for name, decide in changes.items():
            value = self._pool.slices.get(name)
            if value is not None and name not in self._deferred:
                found[name] = decide(value)
                if found[name] is not value:
                    self._write(found[name])
        return Outcome(found, is_complete=set(self._deferred).isdisjoint(changes))

    def _write(self, value: PartitionSlice) -> None:
        self.written.append(value)
        self._pool.record_durable(value, version=0)
