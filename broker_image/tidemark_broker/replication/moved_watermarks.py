"""Keep the high watermarks of all replicas, updated only for those that moved."""

from collections.abc import Mapping

from tidemark_protocol.ids import Offset, TopicId

from tidemark_broker.replication.partition import Partition

Key = tuple[TopicId, int]


class MovedWatermarks:
    def __init__(self) -> None:
        self._known: dict[Key, Offset] = {}
        self._moved: dict[Key, None] = {}

    def note(self, replica: Partition) -> None:
        """Record that a watermark moved, or that the replica was added or removed."""
        self._moved[replica.topic_id, replica.partition] = None

    def current(self, hosted: Mapping[Key, Partition]) -> dict[Key, Offset]:
        for key in self._moved:
            replica = hosted.get(key)
            if replica is None:
                self._known.pop(key, None)
            else:
                self._known[key] = replica.high_watermark
        self._moved.clear()
        return dict(self._known)
