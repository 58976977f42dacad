"""Read one partition for a consumer; delay the fetch while there is too little.

It reads below the high watermark. While it is delayed it reads only what is new; all of it is read
again for the response.

It ends once: by enough records, by its wait, by an error, or by cancellation. An offset between
high watermark and log end is not an error: it waits, as in Kafka. A follower serves only consumers
with a rack (KIP-392), and only while it is in sync and its leader confirms its log; otherwise it
answers NOT_LEADER_OR_FOLLOWER, and the leader, which serves all consumers, decides again.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_BROKER, NO_EPOCH, BrokerId, LeaderEpoch, Offset
from tidemark_protocol.partition_state import Member

from tidemark_broker.clock import Clock, Scheduler, Timer
from tidemark_broker.kafka_wire.records.errors import CorruptBatch, StorageError
from tidemark_broker.kafka_wire.records.record_batch import read_header
from tidemark_broker.log.errors import OffsetOutOfRange, is_storage_failure
from tidemark_broker.log.partition_log import PartitionLog
from tidemark_broker.replication.core.assignment import LocalBroker
from tidemark_broker.replication.core.leader import preferred_replica
from tidemark_broker.replication.delayed_produce import answer
from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.results import Consumer, FetchResult


@dataclass(frozen=True, slots=True)
class FetchParams:
    offset: Offset
    max_bytes: int
    min_bytes: int
    consumer: Consumer
    clock: Clock


class DelayedFetch:
    __slots__ = (
        "_cannot_grow",
        "_corrupt",
        "_done",
        "_found_bytes",
        "_key",
        "_local_broker",
        "_next_offset",
        "_replica",
        "_request",
        "_storage_failed",
        "_timer",
    )

    def __init__(
        self,
        replica: Partition,
        request: FetchParams,
        life: LocalBroker,
        *,
        key: int,
        done: Callable[[FetchResult], None],
        storage_failed: Callable[[Exception], None],
        corrupt: Callable[[CorruptBatch], None],
    ) -> None:
        self._replica = replica
        self._request = request
        self._local_broker = life
        self._key = key
        self._done = done
        self._storage_failed = storage_failed
        self._corrupt = corrupt
        self._timer: Timer | None = None
        self._found_bytes = 0  # up to here, and too few
        self._next_offset = request.offset
        self._cannot_grow = False  # the limit, or the end of its segment, cuts what one read gives

    def start(self, scheduler: Scheduler, max_wait_ms: int) -> Callable[[], None]:
        """Answer immediately or delay the fetch; return a function that cancels it."""
        result = self._sent_elsewhere()
        if result is None:
            is_last_try = max_wait_ms <= 0 or self._request.min_bytes <= 0
            result = self._read(is_last_try=is_last_try)
        if result is not None:
            answer(self._done, result)
            return lambda: None
        self._replica.readers[self._key] = self._retry
        self._timer = scheduler.call_later(max_wait_ms / 1000, self._end)
        return self._leave

    def _retry(self) -> None:
        result = self._read(is_last_try=False)
        if result is not None:
            self._leave()
            answer(self._done, result)

    def _end(self) -> None:
        result = self._read(is_last_try=True)
        assert result is not None
        self._leave()
        answer(self._done, result)

    def _leave(self) -> None:
        self._replica.readers.pop(self._key, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sent_elsewhere(self) -> FetchResult | None:
        """Return the preferred replica, as leader, immediately and without data (KAFKA-13767)."""
        replica, request = self._replica, self._request
        leader = replica.leader
        if leader is None or request.consumer.rack is None or self._rejection() is not None:
            return None
        if not replica.log.log_start_offset <= request.offset:
            return None
        preferred = preferred_replica(
            leader, self._local_broker.brokers, rack=request.consumer.rack, offset=request.offset
        )
        if preferred == leader.broker_id:
            return None
        return self._result(ErrorCode.NONE, preferred_replica=preferred)

    def _rejection(self) -> ErrorCode | None:
        """Return the error, in Kafka's order: the leader epoch, then the role."""
        refused = epoch_error(self._request.consumer.current_leader_epoch, self._replica)
        if refused is not None or self._replica.leader is not None:
            return refused
        if self._request.consumer.rack is not None and may_serve_as_follower(
            self._replica, self._local_broker, self._request.clock()
        ):
            return None
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _read(self, *, is_last_try: bool) -> FetchResult | None:
        refused = self._rejection()
        if refused is not None:
            return FetchResult(refused)
        replica, offset = self._replica, self._request.offset
        log = replica.log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return self._out_of_range()
        data = b""
        error, message = ErrorCode.NONE, ""
        if offset < replica.high_watermark:
            try:
                if self._found_bytes and not is_last_try and not self._has_grown_enough(log):
                    return None
                data = log.read(
                    offset,
                    max_bytes=self._request.max_bytes,
                    end_offset=replica.high_watermark,
                )
            except OffsetOutOfRange as found:
                error, message = ErrorCode.OFFSET_OUT_OF_RANGE, str(found)
            except CorruptBatch as found:
                error, message = ErrorCode.CORRUPT_MESSAGE, str(found)
                self._corrupt(found)
            except (StorageError, OSError) as found:
                error, message = ErrorCode.KAFKA_STORAGE_ERROR, str(found)
                if is_storage_failure(found):
                    self._storage_failed(found)
        if error is ErrorCode.NONE and not is_last_try and len(data) < self._request.min_bytes:
            self._record_too_little(data)
            return None
        return self._result(error, data, message)

    def _has_grown_enough(self, log: PartitionLog) -> bool:
        """Read what is new; return whether it is enough.

        Raises what `PartitionLog.read` raises.
        """
        if self._cannot_grow or self._next_offset >= self._replica.high_watermark:
            return False
        new = log.read(
            self._next_offset,
            max_bytes=self._request.max_bytes - self._found_bytes,
            end_offset=self._replica.high_watermark,
        )
        self._found_bytes += len(new)
        self._next_offset = _end_of(new, self._next_offset)
        return self._found_bytes >= self._request.min_bytes

    def _record_too_little(self, data: bytes) -> None:
        self._cannot_grow = self._found_bytes > len(data)  # though there is more
        self._found_bytes = len(data)
        self._next_offset = _end_of(data, self._request.offset)

    def _out_of_range(self) -> FetchResult:
        log, offset = self._replica.log, self._request.offset
        error = ErrorCode.OFFSET_OUT_OF_RANGE
        if self._replica.leader is None and offset > log.log_end_offset:
            # Only the leader knows whether there is such an offset: a client that took our end for
            # the log's would start anew and read twice. (Kafka says OFFSET_OUT_OF_RANGE here and
            # has its clients ask the leader before they believe it.)
            error = ErrorCode.OFFSET_NOT_AVAILABLE
        high_watermark = self._replica.high_watermark
        message = f"offset {offset}: expected {log.log_start_offset} to {high_watermark}"
        return self._result(error, message=message)

    def _result(
        self,
        error: ErrorCode,
        data: bytes = b"",
        message: str = "",
        preferred_replica: BrokerId = NO_BROKER,
    ) -> FetchResult:
        log = self._replica.log
        return FetchResult(
            error,
            data,
            self._replica.high_watermark,
            log.log_start_offset,
            log.log_end_offset,
            message,
            preferred_replica,
            self._replica.topic_id,
        )


def _end_of(data: bytes, offset: Offset) -> Offset:
    """Return the offset after these complete batches, which are read from `offset` on."""
    position = 0
    while position < len(data):
        header = read_header(data, position)
        offset = header.next_offset
        position += header.size_bytes
    return offset


def epoch_error(current_leader_epoch: LeaderEpoch, replica: Partition) -> ErrorCode | None:
    """Return the error of a consumer's leader epoch, at leaders and followers alike (KIP-320)."""
    if current_leader_epoch == NO_EPOCH or current_leader_epoch == replica.leader_epoch:
        return None
    if current_leader_epoch < replica.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


# guard: follower-serves-in-sync-only (B10)
def may_serve_as_follower(replica: Partition, life: LocalBroker, now_ms: int) -> bool:
    """Return whether this follower serves consumers.

    It is in sync as far as this broker knows, in its present epoch, and confirmed by the leader
    within the lag window: what a consumer sees here is never older than that.
    """
    follower, state = replica.follower, replica.state
    return (
        follower is not None
        and state is not None
        and Member(life.broker_id, life.broker_epoch) in state.in_sync_replicas
        and follower.may_serve_readers(now_ms, lag_max_ms=replica.replica_lag_max_ms)
    )
