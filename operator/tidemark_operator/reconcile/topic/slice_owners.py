"""Read from PartitionSlice objects whose they are and what happens to them.

Only the controller reads the partitions' state and writes slices.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark_protocol.ids import TopicId

from tidemark_operator.api.kinds import Object


@dataclass(frozen=True, slots=True)
class SliceOwner:
    """The slices of one topic id, as far as deletion needs them."""

    pool: str  # namespace/name
    topic_id: TopicId
    topic_name: str
    object_name: str  # of the Topic object that they were made for
    deletion_policy: str  # Delete only if every slice's copy says so
    is_retained: bool  # every slice is


def retained_topics(slices: Iterable[Object]) -> tuple[SliceOwner, ...]:
    """Return the slices in the order of their topic ids; malformed ones are left alone."""
    by_id: dict[TopicId, list[Object]] = {}
    for item in slices:
        if item.get("deleted"):
            continue  # a tombstone: the controller's own
        if item.get("topicId") and item.get("pool") and item.get("topicName"):
            by_id.setdefault(TopicId(item["topicId"]), []).append(item)
    return tuple(_slice_owner(topic_id, by_id[topic_id]) for topic_id in sorted(by_id))


def _slice_owner(topic_id: TopicId, slices: list[Object]) -> SliceOwner:
    first = slices[0]
    every_says_delete = all(item.get("deletionPolicy") == "Delete" for item in slices)
    return SliceOwner(
        pool=first["pool"],
        topic_id=topic_id,
        topic_name=first["topicName"],
        object_name=topic_object_name(first),
        deletion_policy="Delete" if every_says_delete else "Retain",
        is_retained=all(item.get("retained", False) for item in slices),
    )


def topic_object_name(item: Object) -> str:
    """Return the name of the Topic object, from the slice or from the slice's own name."""
    name: str = item.get("topicObject") or item["metadata"]["name"].rpartition("-")[0]
    return name
