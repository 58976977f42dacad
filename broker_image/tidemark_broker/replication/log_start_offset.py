"""Advance log starts: retention in three steps, and deletion of records on request.

Log starts are advanced on the loop, checkpointed in a worker, and only then are the segments below
them deleted: a start of the broker in between finds nothing that looks like corruption. Each
replica does it for itself below its own high watermark; followers also follow their leader's log
start (Kafka: UnifiedLog.deleteOldSegments, ReplicaManager.deleteRecords).
"""

import logging
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset, TopicId

from tidemark_broker.log.errors import DiskFull
from tidemark_broker.log.segment_list import retained_start
from tidemark_broker.replication.partition import Partition

UP_TO_HIGH_WATERMARK = Offset(-1)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogStartAdvances:
    """The log starts below which segments are deleted once their checkpoint is written."""

    starts: tuple[tuple[Partition, Offset], ...]

    def as_far_as(self, written: Mapping[tuple[str, int], Offset]) -> "LogStartAdvances":
        """Return the starts limited to an earlier checkpoint, if a new one could not be written."""
        return LogStartAdvances(
            tuple(
                (replica, min(start, written.get((replica.topic, replica.partition), Offset(0))))
                for replica, start in self.starts
            )
        )


def advance_log_starts(
    replicas: Iterable[Partition], wall_ms: int, kept: Container[TopicId] = ()
) -> LogStartAdvances:
    """Advance log starts by retention; topics in `kept` are exempt.

    Their Topic is deleted and their data may be adopted again (I20). Raises OSError.
    """
    starts = []
    for replica in replicas:
        log = replica.log
        if log.failure:
            continue
        start = log.log_start_offset
        has_config = replica.topic_state is not None  # else it may keep everything for ever
        if has_config and replica.topic_id not in kept:
            start = retained_start(
                log.segments,
                log.settings,
                log_start_offset=start,
                high_watermark=replica.high_watermark,
                now_ms=wall_ms,
            )
        if replica.advance_log_start(start):
            _log.info(
                "log start offset raised by retention",
                extra={
                    "topic": replica.topic,
                    "partition": replica.partition,
                    "log_start_offset": start,
                    "high_watermark": replica.high_watermark,
                },
            )
        starts.append((replica, log.log_start_offset))
    return LogStartAdvances(tuple(starts))


def delete_segments(raised: LogStartAdvances) -> int:
    """Delete segments after the checkpoint; return how many.

    Raises StorageFailed; a full disk only delays it.
    """
    deleted = 0
    for replica, start in raised.starts:
        log = replica.log
        if log.failure:
            continue
        try:
            # A truncation meanwhile may have begun the log anew below.
            deleted += log.delete_segments_below(min(start, log.log_start_offset))
        except DiskFull as error:
            _log.warning("retention deferred, no disk space", extra={"error": str(error)})
    return deleted


@dataclass(frozen=True, slots=True)
class DeleteRecordsResult:
    error: ErrorCode
    log_start_offset: Offset = Offset(-1)
    message: str = ""


def delete_records(replica: Partition, before_offset: Offset) -> DeleteRecordsResult:
    """Delete the records below `before_offset` as the leader; followers follow.

    UP_TO_HIGH_WATERMARK stands for the high watermark. OFFSET_OUT_OF_RANGE above it (I1). The files
    are deleted with the next retention run (Kafka: DeleteRecords, KIP-107).
    """
    high_watermark = replica.high_watermark
    wanted = high_watermark if before_offset == UP_TO_HIGH_WATERMARK else before_offset
    if not 0 <= wanted <= high_watermark:
        return DeleteRecordsResult(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            replica.log.log_start_offset,
            f"records before {before_offset}: expected 0 to {high_watermark} (the high watermark)",
        )
    replica.advance_log_start(wanted)
    return DeleteRecordsResult(ErrorCode.NONE, replica.log.log_start_offset)
