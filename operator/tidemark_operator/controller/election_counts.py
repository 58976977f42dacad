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
        self._counts: dict[Replica, dict[ElectionKind, int]] = {}

    def of(self, replica: Replica) -> dict[ElectionKind, int]:
        return self._counts.get(replica) or dict.fromkeys(ElectionKind, 0)

    def note(self, replica: Replica, kind: ElectionKind) -> None:
        self._counts.setdefault(replica, dict.fromkeys(ElectionKind, 0))[kind] += 1

    def forget(self, topic_id: TopicId) -> None:
        for replica in [replica for replica in self._counts if replica[0] == topic_id]:
            del self._counts[replica]
