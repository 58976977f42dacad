"""Committed records that replicas here cut off, until the controller has recorded the loss.

Kept in memory: a process that ends before its controller heard of it leaves a line in its log and
its metric, nothing else.
"""

import logging
from collections.abc import Callable, Iterable

from tidemark_protocol.controller_messages import CommittedCut
from tidemark_protocol.ids import LeaderEpoch, TopicId

MAX_REPORTED = 256  # in one heartbeat; the others are in the next ones

_log = logging.getLogger(__name__)


class CommittedCuts:
    def __init__(self) -> None:
        self.on_news: Callable[[], None] = lambda: None
        self._unrecorded: dict[tuple[TopicId, int, LeaderEpoch], CommittedCut] = {}

    # guard: committed-truncation-is-reported (S28)
    def note(self, cut: CommittedCut) -> None:
        """A further cut in the same leader epoch says all that the former one said."""
        _log.error(
            "committed records cut off",
            extra={
                "topic_id": cut.topic_id,
                "partition": cut.partition,
                "leader_epoch": cut.leader_epoch,
                "from_offset": cut.to_offset,
                "high_watermark": cut.high_watermark,
                "log_end_offset": cut.log_end_offset,
            },
        )
        self._unrecorded[cut.topic_id, cut.partition, cut.leader_epoch] = cut
        self.on_news()

    def unrecorded(self) -> tuple[CommittedCut, ...]:
        """For the next heartbeat."""
        return tuple(self._unrecorded.values())[:MAX_REPORTED]

    def note_recorded(self, cuts: Iterable[CommittedCut]) -> None:
        """Those of one heartbeat; one that has grown since is reported again."""
        for cut in cuts:
            key = (cut.topic_id, cut.partition, cut.leader_epoch)
            if self._unrecorded.get(key) == cut:
                del self._unrecorded[key]
