"""What was committed to a topic of which only the last record of each key stays.

Replicas compact each for itself, so batches are judged by record: every record that is there is the
committed one at its offset (I3, I4, I7), of a batch with the leader epoch and the producer that it
had; one that is not there is outdated by a later committed record of its key, or is a tombstone
whose delete horizon some clock has passed. Batches are taken as they were committed, before anybody
may compact them: acknowledgements and sequences are judged as for any other topic (I6, I8).
"""

from collections import Counter
from collections.abc import Callable, Collection

from tidemark_broker.kafka_wire.records.batch_rewriting import delete_horizon_ms
from tidemark_broker.kafka_wire.records.errors import CorruptBatch
from tidemark_broker.kafka_wire.records.record_batch import BatchHeader, Record, read_records

from tests.simulation.checks.committed_log import CommittedLog, is_one_bit
from tests.simulation.checks.violations import Violation

COMPACTION = "compaction"  # what a violation is called: a record is gone that must be there


def is_compacted(header: BatchHeader) -> bool:
    """It lacks records, or says when its tombstones may go: it is not what was appended."""
    lacks_records = header.record_count <= header.last_offset_delta
    return lacks_records or delete_horizon_ms(header) is not None


class CompactedLog(CommittedLog):
    is_compacted = True

    def __init__(self, name: str, latest_wall_ms: Callable[[], int]) -> None:
        """`latest_wall_ms`: the latest that any broker's wall clock has shown."""
        super().__init__(name)
        self._outdated_gone: set[int] = set()  # offsets of records that some log has no more
        self._tombstones_gone: set[int] = set()
        self._latest_wall_ms = latest_wall_ms
        self._headers: dict[int, BatchHeader] = {}  # by the offset of each record
        self._records: dict[int, Record] = {}
        self._last_offsets: dict[bytes | None, int] = {}  # of each key
        self._horizons_ms: dict[int, int] = {}  # of tombstones, as some log had it
        self._emptied: list[tuple[range, int]] = []  # gaps, and the leader epoch of their batch
        self._agreeing: set[bytes] = set()  # batches that were judged: what may be gone, stays so
        self.sees_all: Callable[[], bool] = lambda: True  # of every log, past damage too

    def take(self, header: BatchHeader, batch: bytes, who: str) -> None:
        end_offset = self.end_offset
        if header.next_offset > end_offset and is_compacted(header):
            # Of a former history, or damaged wherever it was whole: nobody knows what it was.
            self.compare(header, batch, who)
            self._gaps.append(range(end_offset, header.next_offset))
            covered = range(max(end_offset, header.base_offset), header.next_offset)
            self._emptied.append((covered, header.partition_leader_epoch))
            self._producers.clear()
            self.end_offset = header.next_offset
            return
        super().take(header, batch, who)
        if self.end_offset > end_offset:
            self._record_records(header, batch)

    def _fill(self, header: BatchHeader, batch: bytes) -> None:
        if not is_compacted(header):
            super()._fill(header, batch)
            self._record_records(header, batch)

    def _record_records(self, header: BatchHeader, batch: bytes) -> None:
        for record in read_records(memoryview(batch)):
            self._headers[record.offset] = header
            self._records[record.offset] = record
            last_offset = self._last_offsets.get(record.key, record.offset)
            self._last_offsets[record.key] = max(last_offset, record.offset)

    def begin_history(self, leader_epoch: int, parting_offset: int) -> None:
        super().begin_history(leader_epoch, parting_offset)
        self._agreeing.clear()
        self._emptied = [
            (range(gap.start, min(gap.stop, self.end_offset)), epoch)
            for gap, epoch in self._emptied
        ]
        for offset in [offset for offset in self._records if offset >= self.end_offset]:
            del self._headers[offset], self._records[offset]
        for offset in [offset for offset in self._horizons_ms if offset >= self.end_offset]:
            del self._horizons_ms[offset]
        self._last_offsets = {
            record.key: offset for offset, record in sorted(self._records.items())
        }

    def check_is_whole(self, header: BatchHeader, who: str) -> None:
        """What no leader found committed is not compacted: what outdates it may be cut off yet."""
        is_known = header.next_offset <= self.led_to or self.lost_from is not None
        if is_compacted(header) and not is_known:
            raise Violation(
                COMPACTION,
                f"{self.name}: {who} has {header.record_count} records at offsets"
                f" {header.base_offset} to {header.last_offset}, no leader's high watermark was"
                f" above {self.led_to}",
            )

    def compare(self, header: BatchHeader, batch: bytes, who: str) -> None:
        if batch in self._agreeing or self.batch_at(header.base_offset) == batch:
            return
        found: dict[int, Record] = {
            record.offset: record for record in read_records(memoryview(batch))
        }
        self._record_horizon(header, found)
        self._compare_epochs(header, who)
        for offset in range(header.base_offset, min(header.next_offset, self.end_offset)):
            if offset in self._records:
                self._compare_at(offset, header, found.get(offset), who)
        if header.next_offset <= self.end_offset:
            self._agreeing.add(batch)

    def _record_horizon(self, header: BatchHeader, found: Collection[int]) -> None:
        horizon_ms = delete_horizon_ms(header)
        if horizon_ms is not None:
            for offset in found:
                known_ms = self._horizons_ms.get(offset, horizon_ms)
                self._horizons_ms[offset] = min(horizon_ms, known_ms)

    def _compare_epochs(self, header: BatchHeader, who: str) -> None:
        """Where nothing is known but that it was outdated, another history has another epoch."""
        for gap, epoch in self._emptied:
            first = max(gap.start, header.base_offset)
            if epoch != header.partition_leader_epoch and first < min(gap.stop, header.next_offset):
                raise Violation(
                    "I3",
                    f"{self.name}: {who} has offset {first} in {header}, committed there is an"
                    f" outdated record of leader epoch {epoch}",
                )

    def _compare_at(
        self, offset: int, header: BatchHeader, record: Record | None, who: str
    ) -> None:
        known = self._headers[offset]
        is_other_batch = (record is not None or header.producer_id >= 0) and _identity(
            header
        ) != _identity(known)
        is_other_record = record is not None and record != self._records[offset]
        is_other_epoch = header.partition_leader_epoch != known.partition_leader_epoch
        if is_other_batch or is_other_record or is_other_epoch:
            raise Violation(
                "I3",
                f"{self.name}: {who} has {record or 'nothing'} at offset {offset} in {header},"
                f" committed there is {self._records[offset]} in {known}",
            )
        if record is None:  # of another history it was not there: that comes first
            self.check_may_be_gone(offset, who)

    def check_may_be_gone(self, offset: int, who: str) -> None:
        """Raises Violation if the record is the last one of its key."""
        record = self._records[offset]
        if self._last_offsets[record.key] > offset:
            self._outdated_gone.add(offset)
            return
        if self._is_of_previous_history(offset):
            return  # what outdates it may be what was lost, or what only a former history had
        if self._is_blind_past(offset):
            return
        horizon_ms = self._horizons_ms.get(offset)
        if record.value is None and self._may_have_passed(horizon_ms):
            self._tombstones_gone.add(offset)
            return
        raise Violation(
            COMPACTION,
            f"{self.name}: {who} has nothing at offset {offset}, committed there is the last record"
            f" of its key: {record}, delete horizon {horizon_ms}",
        )

    def _is_blind_past(self, offset: int) -> bool:
        """What outdates it may have been committed in logs alone that a flipped bit hides."""
        is_stale_slice = self.end_offset < self.led_to
        return not self.sees_all() and (
            is_stale_slice or any(gap.stop > offset for gap in self._gaps)
        )

    def _may_have_passed(self, horizon_ms: int | None) -> bool:
        """Where a bit flipped, some log may have had a horizon behind it that nobody looked at."""
        if horizon_ms is None:
            return not self.sees_all()
        return horizon_ms < self._latest_wall_ms()

    def _is_of_previous_history(self, offset: int) -> bool:
        """What is written in a history is outdated by what is written in it, or in a later one."""
        epoch = self._headers[offset].partition_leader_epoch
        return self.lost_from is not None and not self.is_one_history(epoch)

    def may_be_gone(self, header: BatchHeader) -> bool:
        try:
            for offset in range(header.base_offset, header.next_offset):
                if offset in self._records:
                    self.check_may_be_gone(offset, "some log")
                elif not self._is_in_gap(offset):
                    return False
        except Violation:
            return False
        return True

    def differs(self, header: BatchHeader, batch: bytes) -> bool:
        try:
            self.compare(header, batch, "")
        except Violation as found:
            return found.name == "I3"
        except CorruptBatch:  # it is damaged, and told apart by that from all that is sound
            return True
        return False

    def differs_in_epoch_only(self, header: BatchHeader, batch: bytes) -> bool:
        offsets = range(header.base_offset, header.next_offset)
        known = [self._headers[offset] for offset in offsets if offset in self._headers]
        if not known or not all(is_one_bit(each, header) for each in known):
            return False
        records = list(read_records(memoryview(batch)))
        if not records:  # nobody led in it
            return header.partition_leader_epoch not in self.led
        return all(record == self._records.get(record.offset) for record in records)

    def check_shown(self, header: BatchHeader, batch: bytes, who: str) -> None:
        try:
            self.compare(header, batch, f"a reader of {who}")
        except Violation as found:
            raise Violation("I7", found.text) from found

    def coverage(self) -> Counter[str]:
        return Counter(
            {
                "outdated records gone": len(self._outdated_gone),
                "tombstones gone": len(self._tombstones_gone),
            }
        )

    def check_whole_read(self, offsets: Collection[int], begin: int, end: int) -> None:
        """Whoever reads all of it from `begin` to `end` is shown the last record of each key."""
        for offset in self._records:
            if begin <= offset < end and offset not in offsets:
                self.check_may_be_gone(offset, "the last reader")


def _identity(header: BatchHeader) -> tuple[int, ...]:
    return (
        header.base_offset,
        header.last_offset_delta,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )
