"""How many leaders this controller granted to each partition, by kind: to tell, not to decide."""

from enum import Enum

from tidemark_protocol.ids import TopicId

from tidemark_operator.controller.standing import Replica


class ElectionKind(Enum):
    CLEAN = "clean"
    UNCLEAN = "unclean"  # by a last resort
    PLANNED = "planned"  # the former leader was alive, or is the one that was restarted in order


class ElectionCounts:
    def __init__(self) -> None:
        self._counts: dict[TopicId, dict[int, dict[ElectionKind, int]]] = {}

    def of(self, replica: Replica) -> dict[ElectionKind, int]:
        topic_id, partition = replica
        counted = self._counts.get(topic_id, {}).get(partition)
        return counted or dict.fromkeys(ElectionKind, 0)

    def note(self, replica: Replica, kind: ElectionKind) -> None:
        topic_id, partition = replica
        of_topic = self._counts.setdefault(topic_id, {})
        of_topic.setdefault(partition, dict.fromkeys(ElectionKind, 0))[kind] += 1

    def forget(self, topic_id: TopicId) -> None:
        self._counts.pop(topic_id, None)
