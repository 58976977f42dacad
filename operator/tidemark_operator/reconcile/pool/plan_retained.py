"""Plan where retained data moves from brokers that are drained or removed.

The data of a deleted Topic stays where it is until its broker is drained, or is above the pool's
`replicas`. Then it moves as a Topic's replicas do; the controller lets a partition be led during
its move. Nothing else moves it: there is no Topic that says where it should be.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidemark_protocol.ids import BrokerId, TopicId
from tidemark_protocol.partition_state import PartitionState, TopicState

from tidemark_operator.controller.core.reassignment import is_moving, obstacle, target_of
from tidemark_operator.controller.core.views import TopicView
from tidemark_operator.reconcile.topic.plan_placement import (
    MAX_MOVES,
    BrokerPlacement,
    move_target,
    progress_text,
)

MAX_NAMED = 5  # partitions

Targets = dict[int, tuple[BrokerId, ...]]  # by partition


@dataclass(frozen=True, slots=True)
class WhereItIs:
    """The placement of a topic without a Topic object, in place of its spec."""

    replication_factor: int
    placement: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RetainedMoves:
    """The moves to begin, and sentences about those `under_way` and `waiting`."""

    targets: tuple[tuple[TopicState, Targets], ...] = ()
    under_way: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()

    def and_waiting(self, sentences: Iterable[str]) -> "RetainedMoves":
        return replace(self, waiting=(*self.waiting, *sentences))

    def sentences(self) -> list[str]:
        shown = [*self.waiting, *self.under_way]
        more = len(shown) - MAX_NAMED
        return shown[:MAX_NAMED] + ([f"and {more} more partitions of deleted topics"] * (more > 0))


def plan_retained_moves(views: Iterable[TopicView], places: BrokerPlacement) -> RetainedMoves:
    """Plan moves; at most MAX_MOVES run at once, of all retained topics of the pool."""
    states = [(view, state) for view in views if view.is_retained for state in view.partitions]
    room = MAX_MOVES - sum(is_moving(state) for _, state in states)
    targets: dict[TopicId, tuple[TopicState, Targets]] = {}
    under_way, waiting = [], []
    for view, state in states:
        name = f"deleted topic {view.topic.topic}"
        if places.leaving.isdisjoint(target_of(state)):
            if is_moving(state):
                under_way.append(f"{name}, {progress_text(state)}")
            continue
        target = move_target(WhereItIs(len(target_of(state))), state, places)
        if problem := _problem(state, target):
            waiting.append(f"{name}, partition {state.partition} waits: {problem}")
        elif target is not None and (room > 0 or is_moving(state)):
            _, of_topic = targets.setdefault(view.topic.topic_id, (view.topic, {}))
            of_topic[state.partition] = target
            room -= not is_moving(state)
    return RetainedMoves(tuple(targets.values()), tuple(under_way), tuple(waiting))


def _problem(state: PartitionState, target: tuple[BrokerId, ...] | None) -> str:
    if target is None:
        return "no other active broker of the pool accepts replicas"
    return obstacle(state, target, is_retained=True)
