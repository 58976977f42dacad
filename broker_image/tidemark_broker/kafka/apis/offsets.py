"""Answer ListOffsets and OffsetForLeaderEpoch at the leader.

ListOffsets never returns an offset at or above the high watermark. A lookup by time reads files and
decompresses batches, so it takes a turn of the loop. A partition that is named twice is rejected,
as in Kafka. OffsetForLeaderEpoch returns where a client's epoch ends in the leader's log (KIP-320).
"""

import logging
from collections import Counter
from functools import partial

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import LeaderEpoch, Offset

from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest
from tidemark_broker.kafka_wire.messages.cooperative_steps import WHOLE_TURN
from tidemark_broker.kafka_wire.messages.offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    LIST_OFFSETS_API,
    MAX_TIMESTAMP,
    OFFSET_FOR_LEADER_EPOCH_API,
)
from tidemark_broker.kafka_wire.messages.schema import Values, each_partition
from tidemark_broker.kafka_wire.records.errors import StorageError
from tidemark_broker.log.errors import LocalLogCorrupt, is_storage_failure
from tidemark_broker.replication.delayed_fetch import epoch_error
from tidemark_broker.replication.partition import Partition

_FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5  # KIP-207
_FIRST_VERSION_OF = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

Named = tuple[str, int]

_log = logging.getLogger(__name__)


def list_offsets_handler(context: HandlerContext) -> ApiHandler:
    partitions = context.partitions

    def respond(request: KafkaRequest, requested: Values) -> Values:
        named = Counter(
            (topic["topic"], entry["partition"])
            for topic in requested["topics"]
            for entry in topic["partitions"]
        )
        made_of = partial(answer, request.version, named)
        return {"topics": each_partition(requested["topics"], made_of, _steps_of)}

    def answer(version: int, named: Counter[Named], topic: str, requested: Values) -> Values:
        found: Values = {"partition": requested["partition"], "error": ErrorCode.NONE}
        if named[topic, requested["partition"]] > 1:
            return found | {"error": ErrorCode.INVALID_REQUEST}
        replica = partitions.find_leading(topic, requested["partition"])
        if isinstance(replica, ErrorCode):
            return found | {"error": replica}
        rejected = epoch_error(LeaderEpoch(requested["current_leader_epoch"]), replica)
        if rejected is not None:
            return found | {"error": rejected}
        try:
            return found | look_up(replica, requested["timestamp"], version)
        except LocalLogCorrupt as error:
            partitions.corrupt.note(replica, Offset(error.offset), error, "fetch")
            return found | {"error": ErrorCode.KAFKA_STORAGE_ERROR}  # asked again
        except (StorageError, OSError) as error:
            _log.error("offset lookup failed", extra={"error": str(error)})
            if is_storage_failure(error):
                partitions.fail_storage(error)
            return found | {"error": ErrorCode.KAFKA_STORAGE_ERROR}

    return context.answering.sync_handler(LIST_OFFSETS_API, respond)


def _steps_of(requested: Values) -> int:
    timestamp_ms = requested["timestamp"]
    return WHOLE_TURN if timestamp_ms >= 0 or timestamp_ms == MAX_TIMESTAMP else 1


def look_up(replica: Partition, timestamp_ms: int, version: int) -> Values:
    """Return the fields of the answer for one partition.

    Raises StorageError, OSError.
    """
    log = replica.log
    leader = replica.leader
    assert leader is not None
    if timestamp_ms < EARLIEST_PENDING_UPLOAD or version < _FIRST_VERSION_OF.get(timestamp_ms, 0):
        return {"error": ErrorCode.UNSUPPORTED_VERSION}
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return {"offset": start, "leader_epoch": epoch_at(replica, start)}
    if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return {}  # nothing is tiered
    if leader.hides_latest_offset:
        is_known = version >= _FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE
        return {
            "error": ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE
        }
    if timestamp_ms == LATEST:
        return {"offset": replica.high_watermark, "leader_epoch": replica.leader_epoch}
    if timestamp_ms == MAX_TIMESTAMP:
        timestamp_ms = max((segment.max_timestamp_ms for segment in log.segments), default=-1)
        if timestamp_ms < 0:
            return {}
    found = log.offset_for_timestamp(timestamp_ms)
    if found is None or found[0] >= replica.high_watermark:
        return {}
    return {
        "offset": found[0],
        "timestamp": found[1],
        "leader_epoch": epoch_at(replica, found[0]),
    }


def epoch_at(replica: Partition, offset: Offset) -> int:
    """Return the leader epoch of the record at `offset`, or the leader's beyond the last record."""
    epoch: int = replica.leader_epoch
    for known, start_offset in replica.log.epoch_entries:
        if start_offset > offset:
            break
        epoch = known
    return epoch


def offset_for_leader_epoch_handler(context: HandlerContext) -> ApiHandler:
    def answer(topic: str, requested: Values) -> Values:
        found: Values = {"partition": requested["partition"], "error": ErrorCode.NONE}
        replica = context.partitions.find_leading(topic, requested["partition"])
        if isinstance(replica, ErrorCode):
            return found | {"error": replica}
        rejected = epoch_error(LeaderEpoch(requested["current_leader_epoch"]), replica)
        if rejected is not None:
            return found | {"error": rejected}
        if requested["leader_epoch"] == replica.leader_epoch:
            end = replica.high_watermark  # clients read no further
            return found | {"leader_epoch": replica.leader_epoch, "end_offset": end}
        known = replica.log.end_offset_for(LeaderEpoch(requested["leader_epoch"]))
        if known is None:
            return found
        epoch, end_offset = known
        if epoch < replica.log.first_epoch:
            end_offset = max(end_offset, replica.log.log_start_offset)
        return found | {"leader_epoch": epoch, "end_offset": end_offset}

    def respond(request: KafkaRequest, requested: Values) -> Values:
        return {"topics": each_partition(requested["topics"], answer)}

    return context.answering.sync_handler(OFFSET_FOR_LEADER_EPOCH_API, respond)
