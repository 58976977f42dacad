"""Describe what a pool retains of topics that were deleted with deletionPolicy Retain.

Such data is not served. A Topic of that name adopts it, or spec.purgeRetained of the BrokerPool
deletes it (`purges.py`); from a leaving broker it moves (`plan_retained.py`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tidemark_protocol.ids import BrokerId

from tidemark_operator.controller.core.views import TopicView
from tidemark_operator.reconcile.conditions import Condition

MAX_NAMED = 5  # topics
MAX_PARTITIONS_NAMED = 10  # of one topic

# Of one broker: partitions by topicName.
RetainedReplicas = Mapping[str, Sequence[int]]


def retained_replicas(views: Iterable[TopicView]) -> dict[BrokerId, dict[str, list[int]]]:
    """Return the partitions of retained data by broker and topic."""
    found: dict[BrokerId, dict[str, list[int]]] = {}
    for view in views:
        if view.is_retained:
            for state in view.partitions:
                for broker_id in state.replicas:
                    of_broker = found.setdefault(broker_id, {})
                    of_broker.setdefault(view.topic.topic, []).append(state.partition)
    return found


def retained_count(kept: RetainedReplicas) -> int:
    return sum(map(len, kept.values()))


def retained_text(kept: RetainedReplicas) -> str:
    """Return text such as `orders (partitions 0, 1, 4), payments (partitions 0)`."""
    shown = [
        f"{topic} (partitions {shortened(map(str, sorted(kept[topic])), MAX_PARTITIONS_NAMED)})"
        for topic in sorted(kept)[:MAX_NAMED]
    ]
    more = f" and {len(kept) - MAX_NAMED} more topics" if len(kept) > MAX_NAMED else ""
    return ", ".join(shown) + more


def retained_condition(views: Iterable[TopicView]) -> Iterator[Condition]:
    """Yield a condition that says what deleting the namespace would destroy."""
    names = sorted(view.topic.topic for view in views if view.is_retained)
    if names:
        count = "1 deleted topic" if len(names) == 1 else f"{len(names)} deleted topics"
        yield Condition(
            "DataRetained",
            True,
            "TopicsDeleted",
            f"data of {count} is retained ({shortened(names, MAX_NAMED)}): a Topic of that"
            " name serves it again, spec.purgeRetained deletes it, deleting the namespace"
            " destroys it",
        )


def shortened(names: Iterable[str], most: int) -> str:
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
