"""Load a partition of `__consumer_offsets` up to where it ended when this broker became its leader.

Loading begins when all of that is committed: before, a record may still be truncated. It runs in
small steps, so that the broker serves others in between. A log that cannot be read is read again:
the groups of this partition wait, because they must not go on without offsets that they committed.
"""

import logging
from collections.abc import Callable

from tidemark_broker.clock import Scheduler, Timer
from tidemark_broker.kafka_wire.records.errors import CorruptBatch, StorageError
from tidemark_broker.kafka_wire.records.record_batch import read_records, split_batches
from tidemark_broker.log.errors import is_storage_failure
from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.replica_manager import ReplicaManager

LOAD_STEP_BYTES = 64 * 1024  # some milliseconds
LOAD_RETRY_SECONDS = 1.0

_log = logging.getLogger(__name__)

OnRecord = Callable[[bytes, bytes | None], None]


class CoordinatorLoader:
    def __init__(
        self,
        replica: Partition,
        partitions: ReplicaManager,
        scheduler: Scheduler,
        *,
        on_record: OnRecord,
        on_end: Callable[[], None],
    ) -> None:
        assert replica.leader is not None
        self.end_offset = replica.leader.epoch_start_offset
        self._replica = replica
        self._partitions = partitions
        self._scheduler = scheduler
        self._on_record = on_record
        self._on_end = on_end
        self._next_offset = replica.log.log_start_offset
        self._timer: Timer | None = None
        self._is_over = False

    def on_watermark(self) -> None:
        if self._timer is None and not self._is_over and self._is_all_committed:
            self._timer = self._scheduler.call_later(0, self._step)

    def cancel(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    @property
    def _is_all_committed(self) -> bool:
        return self._replica.high_watermark >= self.end_offset

    def _step(self) -> None:
        self._timer = None
        if self._next_offset >= self.end_offset:
            self._is_over = True
            self._on_end()
            return
        try:
            self._read()
            delay_seconds = 0.0
        except (StorageError, OSError) as error:
            self._record(error)
            delay_seconds = LOAD_RETRY_SECONDS
        self._timer = self._scheduler.call_later(delay_seconds, self._step)

    def _read(self) -> None:
        """Read the next step of the log and pass its records to the core.

        Raises StorageError, OSError.
        """
        log = self._replica.log
        offset = max(self._next_offset, log.log_start_offset)  # which somebody may have raised
        data = log.read(offset, max_bytes=LOAD_STEP_BYTES, end_offset=self.end_offset)
        for batch in split_batches(memoryview(data), max_batch_bytes=max(1, len(data))):
            if not batch.header.is_control:
                for record in read_records(batch.data):
                    if record.offset >= offset and record.key is not None:
                        self._on_record(record.key, record.value)
            self._next_offset = batch.header.next_offset
            offset = max(offset, self._next_offset)
        if not data:
            self._next_offset = self.end_offset

    def _record(self, error: Exception) -> None:
        _log.error(
            "group offsets not loaded, retrying",
            extra={
                "partition": self._replica.partition,
                "offset": self._next_offset,
                "error": str(error),
            },
        )
        if isinstance(error, CorruptBatch):
            self._partitions.corrupt.note(self._replica, self._next_offset, error, "fetch")
        elif is_storage_failure(error):
            self._partitions.fail_storage(error)
