"""Append the batches of a produce: reject, append, acknowledge.

Each write passes here. Errors come in Kafka's order and before anything is written. An acks=all
produce waits in the replica's purgatory; one timer sweeps those whose time is up. Only batch
headers are read here, except for compacted topics.

A compacted topic needs a key in each record, and a batch that can be decompressed here. Kafka
rejects records without keys the same way. What cannot be decompressed could never be compacted, and
would keep each tombstone behind it without limit (docs/decisions/0013). More than one turn of the
broker's loop should decompress is rejected, and so is a record with a time outside of 64 bits,
about which clients would disagree, or with an offset that is not its place among the others.
"""

from collections.abc import Callable, Iterable

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

from tidemark_broker.clock import Clock, Scheduler, Timer
from tidemark_broker.kafka_wire.records.errors import (
    CorruptBatch,
    StorageError,
    UnsupportedCompression,
)
from tidemark_broker.kafka_wire.records.record_batch import (
    Batch,
    DecompressionBudget,
    split_batches,
    with_append_time,
    with_create_time,
)
from tidemark_broker.log.errors import DiskFull, is_storage_failure
from tidemark_broker.log.log_config import LogSettings
from tidemark_broker.log.producer_state_entry import NO_PRODUCER_ID
from tidemark_broker.replication.core.idempotence import (
    RejectBatch,
    check_sequence,
    malformed_producer,
)
from tidemark_broker.replication.delayed_produce import ProduceCallback, answer
from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.record_errors import records_rejected, with_more
from tidemark_broker.replication.record_times import timestamp_error
from tidemark_broker.replication.results import NO_APPEND_TIME, ProduceResult, RecordError

_HINT = "a compacted topic (cleanup.policy) needs a key in each record"


def compaction_error(batches: Iterable[Batch]) -> ProduceResult | None:
    budget = DecompressionBudget()
    found: list[RecordError] = []
    first_index = 0
    for batch in batches:
        try:
            budget.take(batch.header)
            records = budget.records_of(batch.header, batch.data, rejects_odd_times=True)
            for number, record in enumerate(records):
                if record.offset != batch.header.base_offset + number:
                    found.append(RecordError(first_index + number, _misplaced(record.offset)))
                elif record.key is None:
                    found.append(RecordError(first_index + number, "the record has no key"))
        except UnsupportedCompression as error:
            return ProduceResult(
                ErrorCode.MESSAGE_TOO_LARGE,  # Java's client and kafka-python split the batch then
                message=f"{error} in a compacted topic (cleanup.policy): send smaller batches",
            )
        except CorruptBatch as error:
            return ProduceResult(ErrorCode.INVALID_RECORD, message=str(error))
        first_index += batch.header.record_count
    return records_rejected(ErrorCode.INVALID_RECORD, found, _HINT) if found else None


def _misplaced(offset: Offset) -> str:
    return f"the record has offset {offset}, so the last record of a key would be unknown"


ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
EXPIRY_SWEEP_SECONDS = 0.05  # how late a produce may be told that it timed out


class RecordAppender:
    def __init__(
        self,
        *,
        find_leading: Callable[[str, int], Partition | ErrorCode],
        fail_storage: Callable[[Exception], None],
        scheduler: Scheduler,
        clock: Clock,
        wall_clock_s: Callable[[], float],
        low_disk_space: Callable[[], str],
    ) -> None:
        """Create an appender.

        `find_leading` returns the local leader, or the error to send; `low_disk_space` is a
        sentence about low disk space, or "".
        """
        self._find_leading = find_leading
        self._fail_storage = fail_storage
        self._scheduler = scheduler
        self._clock = clock
        self._wall_clock_s = wall_clock_s
        self._low_disk_space = low_disk_space
        self._expiry_timer: Timer | None = None
        self._waiting: dict[Partition, None] = {}  # those of produces that are not answered yet

    def produce(
        self,
        topic: str,
        partition: int,
        data: memoryview,
        *,
        acks: int,
        timeout_ms: int,
        done: ProduceCallback,
    ) -> None:
        """Produce as `ReplicaManager.produce` does."""
        if acks not in (ACKS_ALL, ACKS_NONE, ACKS_LEADER):
            message = f"acks: expected -1, 0 or 1, found {acks}"
            answer(done, ProduceResult(ErrorCode.INVALID_REQUIRED_ACKS, message=message))
            return
        replica = self._find_leading(topic, partition)
        if isinstance(replica, ErrorCode):
            answer(done, ProduceResult(replica))
            return
        rejection = _rejection(replica, acks)
        if rejection is not None:
            answer(done, rejection)
            return
        batches = _checked_batches(data, replica.max_batch_bytes)
        if isinstance(batches, ProduceResult):
            answer(done, batches)
            return
        settings = replica.log.settings
        if settings.compacts and (rejection := compaction_error(batches)) is not None:
            if rejection.record_errors:
                wall_ms = int(self._wall_clock_s() * 1000)
                rejection = with_more(rejection, timestamp_error(batches, settings, wall_ms))
            answer(done, rejection)
            return
        now_ms = self._clock()
        written = self._write_once(replica, batches, now_ms, done)
        if written is None:
            return
        first_offset, end_offset, append_time_ms = written
        result = ProduceResult(
            ErrorCode.NONE,
            first_offset,
            replica.log.log_start_offset,
            append_time_ms=append_time_ms,
        )
        needs_sync = _waits_for_disk(replica, acks, end_offset)
        if acks != ACKS_ALL and not needs_sync:
            answer(done, result)
            return
        replica.produces.add(
            end_offset,
            deadline_ms=now_ms + max(0, timeout_ms),
            result=result,
            done=done,
            for_sync_only=needs_sync,
        )
        self._waiting[replica] = None
        if not needs_sync and replica.high_watermark >= end_offset:
            replica.produces.complete(replica.leader)  # RF 1, or a duplicate
        elif self._expiry_timer is None:
            self._expiry_timer = self._scheduler.call_later(EXPIRY_SWEEP_SECONDS, self._expire)

    def _write_once(
        self, replica: Partition, batches: list[Batch], now_ms: int, done: ProduceCallback
    ) -> tuple[Offset, Offset, int] | None:
        """Append batches, or find them in the log already (I8).

        Returns their first and end offset and the time they were stamped with, or -1. None:
        rejected or failed, and answered.
        """
        header, settings = batches[0].header, replica.log.settings
        if header.producer_id > NO_PRODUCER_ID:
            verdict = check_sequence(header, replica.log.producers)
            if isinstance(verdict, RejectBatch):
                answer(done, _rejected(verdict, replica.log.log_start_offset))
                return None
            if verdict is not None:
                replica.duplicate_batches += 1
                # Kafka tells the stored time whatever the topic's kind of timestamps is; of a
                # CreateTime batch it is the largest of its records', not each one's own.
                stamped_ms = verdict.timestamp_ms if settings.stamps_append_time else NO_APPEND_TIME
                return verdict.first_offset, verdict.end_offset, stamped_ms
        if self._low_disk_space():
            answer(done, _no_space(self._low_disk_space()))
            return None
        wall_ms = int(self._wall_clock_s() * 1000)
        if (rejection := timestamp_error(batches, settings, wall_ms)) is not None:
            answer(done, rejection)
            return None
        batches = [_as_stored(batch, settings, wall_ms) for batch in batches]
        try:
            first_offset, end_offset = replica.append(batches, now_ms)
            append_time_ms = wall_ms if settings.stamps_append_time else NO_APPEND_TIME
            return first_offset, end_offset, append_time_ms
        except DiskFull as error:
            answer(done, _no_space(str(error)))
            return None
        except (StorageError, OSError) as error:
            answer(done, ProduceResult(ErrorCode.KAFKA_STORAGE_ERROR, message=str(error)))
            if is_storage_failure(error):
                self._fail_storage(error)
            return None

    def _expire(self) -> None:
        self._expiry_timer = None
        now_ms = self._clock()
        for replica in tuple(self._waiting):
            replica.produces.expire(now_ms)
            if not len(replica.produces):
                self._waiting.pop(replica, None)
        if self._waiting:
            self._expiry_timer = self._scheduler.call_later(EXPIRY_SWEEP_SECONDS, self._expire)


def _as_stored(batch: Batch, settings: LogSettings, wall_ms: int) -> Batch:
    """Give the batch the topic's type of timestamps (docs/decisions/0150)."""
    if settings.stamps_append_time:
        return with_append_time(batch, wall_ms)
    return with_create_time(batch) if batch.header.has_append_time else batch


# guard: leader-acknowledges-once-synced (S11)
def _waits_for_disk(replica: Partition, acks: int, end_offset: Offset) -> bool:
    """Return whether the acknowledgement needs the leader's disk (S11).

    With `flush: Always` an acknowledged record is on the disk of each replica that acknowledges it.
    """
    return acks == ACKS_LEADER and replica.has_unsynced(end_offset)


# guard: append-with-min-isr (I9)
def _rejection(replica: Partition, acks: int) -> ProduceResult | None:
    leader = replica.leader
    assert leader is not None
    if acks == ACKS_ALL and not leader.has_enough_in_sync_replicas:
        return ProduceResult(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            message=f"{len(leader.in_sync_replicas)} in-sync replicas, min.insync.replicas is"
            f" {leader.state.min_insync_replicas}",
        )
    return None


def _rejected(verdict: RejectBatch, log_start_offset: Offset) -> ProduceResult:
    # Without the log's start Java's client sends UNKNOWN_PRODUCER_ID's batch again as it is, until
    # its delivery.timeout.ms; with it, again with a new epoch (TransactionManager.canRetry).
    return ProduceResult(verdict.error, log_start_offset=log_start_offset, message=verdict.message)


def _no_space(message: str) -> ProduceResult:
    return ProduceResult(ErrorCode.KAFKA_STORAGE_ERROR, message=message, is_out_of_space=True)


def _checked_batches(data: memoryview, max_batch_bytes: int) -> list[Batch] | ProduceResult:
    """Return complete, valid data batches of a size that the topic allows, or the error.

    With a producer id only one, as in Kafka since produce version 3: two could not be distinguished
    from one that half failed.
    """
    try:
        batches = split_batches(data, max_batch_bytes=max(1, len(data)))
    except CorruptBatch as error:
        return ProduceResult(ErrorCode.CORRUPT_MESSAGE, message=str(error))
    if not batches:
        return ProduceResult(ErrorCode.INVALID_RECORD, message="no record batch found")
    for batch in batches:
        header = batch.header
        if header.size_bytes > max_batch_bytes:
            return ProduceResult(
                ErrorCode.MESSAGE_TOO_LARGE,
                message=f"a batch of {header.size_bytes} bytes: expected at most"
                f" {max_batch_bytes} (max.message.bytes)",
            )
        if header.is_control or header.record_count != header.last_offset_delta + 1:
            return ProduceResult(
                ErrorCode.INVALID_RECORD,
                message="expected data records with offsets 0 to n-1, found a control batch or"
                f" {header.record_count} records over {header.last_offset_delta + 1} offsets",
            )
        fault = malformed_producer(header)
        if not fault and header.producer_id > NO_PRODUCER_ID and len(batches) > 1:
            fault = f"expected one batch of producer {header.producer_id}, found {len(batches)}"
        if fault:
            return ProduceResult(ErrorCode.INVALID_RECORD, message=fault)
    return batches
