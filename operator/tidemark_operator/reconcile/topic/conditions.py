"""Build a Topic's conditions about its partitions."""

from collections.abc import Iterator

from tidemark_operator.api.topic import TopicStatus
from tidemark_operator.controller.core.reassignment import original_of
from tidemark_operator.controller.core.views import TopicView
from tidemark_operator.reconcile.conditions import Condition
from tidemark_operator.reconcile.topic.plan_placement import moving_conditions


def ready_conditions(view: TopicView, *, wanted: int = 0) -> tuple[Condition, ...]:
    """Return the conditions; `wanted` is how many partitions are being created, if more."""
    return tuple(_ready_conditions(view, max(wanted, view.topic.partition_count)))


def _ready_conditions(view: TopicView, wanted: int) -> Iterator[Condition]:
    count = view.topic.partition_count
    known = len(view.partitions)
    led = _led(view)
    leaderless = [state.partition for state in view.partitions if not state.has_leader]
    # One that never had a leader is on its way to its first one.
    had_leader = any(state.leader_epoch > 0 for state in view.partitions if not state.has_leader)
    if known < count:
        yield Condition(
            "Ready", False, "StateUnsettled", f"{known} of {count} partitions can be read"
        )
    elif had_leader:
        yield Condition("Ready", False, "Leaderless", f"no leader: {listing(leaderless)}")
    elif led < wanted:
        yield Condition(
            "Ready", False, "Progressing", f"{led:,} of {wanted:,} partitions have a leader"
        )
    else:
        text = f"all {count} partitions have a leader"
        if view.deletion_policy == "Retain":
            text += "; deleting the Topic keeps its data, deleting the namespace destroys it"
        yield Condition("Ready", True, "AllPartitionsLed", text)
    yield _replication_condition(view)
    yield from moving_conditions(view)
    if view.notices:
        yield Condition("Attention", True, "SeeMessage", "; ".join(view.notices))


def _replication_condition(view: TopicView) -> Condition:
    behind = [
        state.partition
        for state in view.partitions
        if not state.in_sync_ids.issuperset(original_of(state))
    ]
    if not behind:
        return Condition("FullyReplicated", True, "AllInSync", "every replica is in sync")
    text = f"under-replicated: {listing(behind)}"
    refusing = [
        state.partition
        for state in view.partitions
        if len(state.in_sync_ids) < state.min_insync_replicas
    ]
    if not refusing:
        return Condition("FullyReplicated", False, "UnderReplicated", text)
    return Condition(
        "FullyReplicated",
        False,
        "BelowMinInsync",
        f"below min.insync.replicas, acks=all writes are rejected: {listing(refusing)}; {text}",
    )


def listing(partitions: list[int]) -> str:
    shown = ", ".join(str(partition) for partition in partitions[:20])
    more = f" and {len(partitions) - 20} more" if len(partitions) > 20 else ""
    return f"partitions {shown}{more}"


def status_fields(view: TopicView) -> TopicStatus:
    replicas = sum(len(state.replicas) for state in view.partitions)
    in_sync = sum(len(state.in_sync_replicas) for state in view.partitions)
    behind = sum(len(state.in_sync_replicas) < len(state.replicas) for state in view.partitions)
    return TopicStatus(
        topic_id=view.topic.topic_id,
        in_sync=f"{in_sync}/{replicas}",
        under_replicated=behind,
        led_partitions=_led(view),
        leaderless=len(view.partitions) - _led(view),
    )


def _led(view: TopicView) -> int:
    return sum(state.has_leader for state in view.partitions)
