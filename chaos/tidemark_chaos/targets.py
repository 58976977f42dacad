"""Choose the brokers of a fault by their roles in the moment when it begins. Pure."""

from tidemark_client.cluster_status import ClusterStatus
from tidemark_client.metadata import NO_LEADER, PartitionView

from tidemark_chaos.schedule import PlannedFault
from tidemark_chaos.spec import Role

NOT_RUNNING = frozenset({"Gone", "Starting"})


class NoTarget(Exception):
    """An error: nothing has that role now; the text says what was found."""


def choose(
    fault: PlannedFault, status: ClusterStatus | None, topic: str, struck: frozenset[int]
) -> tuple[int, ...]:
    """Return the ids of the brokers to strike; none for the controller.

    `struck` are those that another fault holds: they are not chosen. Raises NoTarget.
    """
    if fault.role is Role.CONTROLLER:
        return ()
    if status is None:
        raise NoTarget("the controller does not answer, so roles are unknown")
    running = tuple(sorted(row.broker_id for row in status.brokers if row.state not in NOT_RUNNING))
    match fault.role:
        case Role.LEADER:
            view = _partition(fault, status, topic)
            if view.leader == NO_LEADER:
                raise NoTarget(f"{topic}-{fault.partition} has no leader")
            candidates: tuple[int, ...] = (view.leader,)
        case Role.FOLLOWER:
            view = _partition(fault, status, topic)
            candidates = tuple(broker_id for broker_id in view.replicas if broker_id != view.leader)
        case Role.ALL:
            return running
        case _:
            candidates = running
    free = [broker_id for broker_id in candidates if broker_id not in struck]
    if len(free) < fault.count:
        raise NoTarget(
            f"{len(free)} brokers with role {fault.role} that no other fault has, expected"
            f" {fault.count}"
        )
    first = int(fault.draw * len(free)) % len(free)
    return tuple(sorted((free[first:] + free[:first])[: fault.count]))


def led_by(status: ClusterStatus | None, topic: str, brokers: tuple[int, ...]) -> tuple[int, ...]:
    """Return the partitions that these brokers lead."""
    view = None if status is None else status.topic(topic)
    entries = () if view is None else view.partitions
    return tuple(entry.partition for entry in entries if entry.leader in brokers)


def _partition(fault: PlannedFault, status: ClusterStatus, topic: str) -> PartitionView:
    view = status.topic(topic)
    for entry in () if view is None else view.partitions:
        if entry.partition == fault.partition:
            return entry
    raise NoTarget(f"{topic}-{fault.partition} is not known to the controller")
