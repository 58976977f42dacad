"""Plan which partitions of a Topic move to other brokers.

Reasons are spec.placement, another replicationFactor, or leaving brokers (drained, or above the
pool's replicas). Everything else stays where it is. A replica that leaves is replaced in its own
position of the list, so preferred leaders stay spread; its replacement follows the placement
formula, brokers that are active and in racks that the partition lacks first.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import PartitionState

from tidemark_operator.controller.core.placement import place
from tidemark_operator.controller.core.reassignment import is_moving, obstacle, target_of
from tidemark_operator.controller.core.views import TopicView
from tidemark_operator.reconcile.conditions import Condition

# Moves under way at once per Topic; what they cost is bounded by the pool's moveBytesPerSecond.
MAX_MOVES = 100
MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class BrokerPlacement:
    """Where replicas may be; `usable` are the manifest's brokers that do not leave."""

    usable: tuple[BrokerId, ...]
    leaving: frozenset[BrokerId] = frozenset()
    active: frozenset[BrokerId] = frozenset()
    racks: Mapping[BrokerId, str] = field(default_factory=dict)


class Wanted(Protocol):
    """The part of a Topic's spec that decides its placement."""

    @property
    def replication_factor(self) -> int: ...

    @property
    def placement(self) -> Mapping[int, tuple[BrokerId, ...]]: ...


def is_misplaced(spec: Wanted, state: PartitionState, leaving: frozenset[BrokerId]) -> bool:
    """Return whether something may have to move, without reading the pool."""
    target, requested = target_of(state), spec.placement.get(state.partition)
    if requested is not None:
        return target != requested or not leaving.isdisjoint(requested)  # then a condition says so
    return len(target) != spec.replication_factor or not leaving.isdisjoint(target)


def any_misplaced(spec: Wanted, view: TopicView, leaving: frozenset[BrokerId]) -> bool:
    return any(is_misplaced(spec, state, leaving) for state in view.partitions)


def wanted_moves(
    spec: Wanted, view: TopicView, places: BrokerPlacement
) -> dict[int, tuple[BrokerId, ...]]:
    """Return the targets of partitions whose moves can begin now.

    Those of spec.placement come last: entries that cannot be followed must not use up what leaving
    brokers wait for.
    """
    under_way = sum(is_moving(state) for state in view.partitions)
    moves: dict[int, tuple[BrokerId, ...]] = {}
    for state in sorted(view.partitions, key=lambda state: state.partition in spec.placement):
        if under_way + len(moves) >= MAX_MOVES and not is_moving(state):
            continue
        if is_misplaced(spec, state, places.leaving):
            target = move_target(spec, state, places)
            if target is None or target == target_of(state):
                continue
            if not obstacle(state, target, is_retained=view.is_retained):
                moves[state.partition] = target
    return moves


def move_target(
    spec: Wanted, state: PartitionState, places: BrokerPlacement
) -> tuple[BrokerId, ...] | None:
    """Return the target of a partition; None if there are too few brokers."""
    requested = spec.placement.get(state.partition)
    if requested is not None:
        return requested
    current = target_of(state)
    wanted = [b for b in current if b not in places.leaving][: spec.replication_factor]
    for index, leaves in enumerate(current[: spec.replication_factor]):
        if leaves in places.leaving:
            found = _replacement(state, wanted, places)
            if found is None:
                return None
            wanted.insert(min(index, len(wanted)), found)
    while len(wanted) < spec.replication_factor:
        found = _replacement(state, wanted, places)
        if found is None:
            return None
        wanted.append(found)
    return tuple(wanted[: spec.replication_factor])


def _replacement(
    state: PartitionState, wanted: list[BrokerId], places: BrokerPlacement
) -> BrokerId | None:
    if not places.usable:
        return None
    (ring,) = place(
        1,
        len(places.usable),
        places.usable,
        first_partition=state.partition,
        racks=places.racks,
    )
    taken = {places.racks.get(broker_id, "") for broker_id in wanted}
    free = [b for b in ring if b not in wanted and b in places.active]
    return min(free, key=lambda b: (places.racks.get(b, "") in taken, ring.index(b)), default=None)


def pinned_condition(spec: Wanted, leaving: frozenset[BrokerId]) -> Iterator[Condition]:
    """Yield a condition about a placement on leaving brokers, which only the user can change."""
    pinned = sorted(number for number, to in spec.placement.items() if not leaving.isdisjoint(to))
    if pinned:
        yield Condition(
            "Placed",
            False,
            "PlacementOnLeavingBroker",
            f"spec.placement keeps partitions {_names(pinned[:20])} on brokers to drain"
            f" ({_names(sorted(leaving))}):"
            " change spec.placement, or drain other brokers",
        )


def moving_conditions(view: TopicView) -> Iterator[Condition]:
    moving = [state for state in view.partitions if is_moving(state)]
    if moving:
        text = "; ".join(progress_text(state) for state in moving[:MAX_NAMED])
        more = f"; and {len(moving) - MAX_NAMED} more" if len(moving) > MAX_NAMED else ""
        yield Condition("Moving", True, "Reassigning", text + more)


def progress_text(state: PartitionState) -> str:
    missing = [b for b in target_of(state) if b not in state.in_sync_ids]
    waits = f"waiting for {_names(missing)} to be in sync" if missing else "completing"
    return f"partition {state.partition} to brokers {_names(target_of(state))}: {waits}"


def replica_counts(views: Iterable[TopicView]) -> dict[BrokerId, int] | None:
    """Return the replicas of each broker, retained ones too; None if some state is unknown."""
    counts: dict[BrokerId, int] = {}
    for view in views:
        if not _is_known(view):
            return None
        for state in view.partitions:
            for broker_id in state.replicas:
                counts[broker_id] = counts.get(broker_id, 0) + 1
    return counts


def unknown_topics(views: Iterable[TopicView]) -> list[str]:
    """Return the topics because of which replicas cannot be counted."""
    return [
        f"deleted topic {view.topic.topic}" if view.is_retained else view.topic.topic
        for view in views
        if not _is_known(view)
    ]


def _is_known(view: TopicView) -> bool:
    return not view.missing_slices and len(view.partitions) >= view.topic.partition_count


def _names(broker_ids: Iterable[int]) -> str:
    return ",".join(map(str, broker_ids))
