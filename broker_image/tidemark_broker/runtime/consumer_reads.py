"""A consumer's read of one partition: below the high watermark, parked while there is too little.

It ends once: by enough records, by its wait, by an error, or by cancellation. An offset between
high watermark and log end is not an error: it waits, as in Kafka.
"""

from collections.abc import Callable

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

from tidemark_broker.runtime.hosted_replica import HostedReplica, is_storage_failure
from tidemark_broker.runtime.produce_purgatory import answer
from tidemark_broker.runtime.results import FetchResult
from tidemark_broker.runtime.scheduling import Scheduler, Timer
from tidemark_broker.storage.errors import OffsetOutOfRange, StorageError


class ConsumerRead:
    __slots__ = (
        "_done",
        "_key",
        "_max_bytes",
        "_min_bytes",
        "_offset",
        "_replica",
        "_storage_failed",
        "_timer",
    )

    def __init__(
        self,
        replica: HostedReplica,
        offset: Offset,
        *,
        key: int,
        max_bytes: int,
        min_bytes: int,
        done: Callable[[FetchResult], None],
        storage_failed: Callable[[Exception], None],
    ) -> None:
        self._replica = replica
        self._offset = offset
        self._key = key
        self._max_bytes = max_bytes
        self._min_bytes = min_bytes
        self._done = done
        self._storage_failed = storage_failed
        self._timer: Timer | None = None

    def start(self, scheduler: Scheduler, max_wait_ms: int) -> Callable[[], None]:
        """Answers at once or parks; returns what cancels it."""
        result = self._read(is_last_try=max_wait_ms <= 0 or self._min_bytes <= 0)
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

    def _read(self, *, is_last_try: bool) -> FetchResult | None:
        replica = self._replica
        log = replica.log
        if replica.leader is None:
            return FetchResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        high_watermark = replica.high_watermark
        data = b""
        error, message = ErrorCode.NONE, ""
        if not log.log_start_offset <= self._offset <= log.log_end_offset:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
            message = f"offset {self._offset}: expected {log.log_start_offset} to {high_watermark}"
        elif self._offset < high_watermark:
            try:
                data = log.read(self._offset, max_bytes=self._max_bytes, end_offset=high_watermark)
            except OffsetOutOfRange as found:
                error, message = ErrorCode.OFFSET_OUT_OF_RANGE, str(found)
            except (StorageError, OSError) as found:
                error, message = ErrorCode.KAFKA_STORAGE_ERROR, str(found)
                if is_storage_failure(found):
                    self._storage_failed(found)
        if error is ErrorCode.NONE and not is_last_try and len(data) < self._min_bytes:
            return None
        return FetchResult(
            error,
            data,
            high_watermark,
            log.log_start_offset,
            log.log_end_offset,
            message,
        )
