"""Keep a record of a deleted topic until all brokers have applied the deletion (S12).

Brokers delete a log only for an explicit entry, and one that was away must find that entry when it
comes back, under any controller. So a deletion begins with a durable deletion record, which names
the slices to delete; the record itself is deleted when all brokers that may hold a replica have
applied it. It is a PartitionSlice object without partitions, with a name that no Topic's slice can
have, so the next topic of the same name need not wait.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidemark_protocol.ids import BrokerId, ControllerEpoch, TopicId
from tidemark_protocol.partition_state import TopicState

from tidemark_operator.api.kinds import PARTITION_SLICE, Object
from tidemark_operator.api.partition_slice import (
    MalformedObject,
    PartitionSlice,
    labels_of,
    split_pool,
)


@dataclass(frozen=True, slots=True)
class Tombstone:
    pool: str  # namespace/name
    topic_id: TopicId
    topic: str
    awaited: tuple[BrokerId, ...]  # who may hold a replica
    slices: dict[str, str] = field(default_factory=dict)  # uids by name: what is deleted with it
    uid: str = ""

    @property
    def name(self) -> str:
        return f"deleted.{self.topic_id}"  # a slice's name ends with a dash and its number

    @property
    def topic_state(self) -> TopicState:
        """Return the topic as far as a push of the deletion needs it."""
        return TopicState(self.topic, self.topic_id, 0, 0)

    # guard: tombstone-covers-its-slices-only (S12)
    def covers(self, value: PartitionSlice) -> bool:
        """Return False for a slice of that topic that was created later: it is left alone."""
        return self.slices.get(value.name) == value.uid


def tombstone_of(slices: Iterable[PartitionSlice], brokers: Iterable[BrokerId]) -> Tombstone:
    """Return the deletion record of all slices of a topic.

    `brokers` are all of the pool: one that lost its replica while it was down may still hold a log.
    """
    slices = tuple(slices)
    first = slices[0]
    replicas = (b for value in slices for state in value.partitions for b in state.replicas)
    return Tombstone(
        first.pool,
        first.topic.topic_id,
        first.topic.topic,
        tuple(sorted({*brokers, *replicas})),
        {value.name: value.uid for value in slices},
    )


def tombstone_object(tombstone: Tombstone, controller_epoch: ControllerEpoch) -> Object:
    return {
        "apiVersion": PARTITION_SLICE.api_version,
        "kind": PARTITION_SLICE.kind,
        "metadata": {
            "namespace": split_pool(tombstone.pool)[0],
            "name": tombstone.name,
            "labels": labels_of(tombstone.pool),
        },
        "pool": tombstone.pool,
        "topicName": tombstone.topic,
        "topicId": tombstone.topic_id,
        "deleted": True,
        "awaited": list(tombstone.awaited),
        "deletedSlices": dict(tombstone.slices),
        "controllerEpoch": controller_epoch,
        "partitions": [],
    }


def is_tombstone(item: Object) -> bool:
    return bool(item.get("deleted", False))


def read_tombstone(item: Object) -> Tombstone:
    """Read a deletion record.

    Raises MalformedObject.
    """
    metadata = item["metadata"]
    try:
        return Tombstone(
            pool=item["pool"],
            topic_id=TopicId(item["topicId"]),
            topic=item["topicName"],
            awaited=tuple(BrokerId(int(number)) for number in item["awaited"]),
            slices=dict(item.get("deletedSlices", {})),
            uid=metadata.get("uid", ""),
        )
    except (KeyError, TypeError, ValueError) as error:
        place = f"PartitionSlice {metadata.get('namespace')}/{metadata.get('name')}"
        raise MalformedObject(f"{place}: {type(error).__name__} {error}") from error
