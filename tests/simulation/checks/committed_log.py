"""What was committed, remembered outside of every broker: the judge's copy of each partition.

The first replica whose high watermark passes a batch decides its bytes for ever (I3, I4, I7); what
acks=all acknowledged must lie in it (I6), and each producer's sequences are in it in their order,
each once (I8). An unclean election or one by the longest log begins a new history where the new
leader's log parts from it: what was committed past that is lost, and from the moment that leader
begins its log says what is committed. Nothing past that is judged of a log of a former history.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from math import inf

from tidemark_broker.kafka_wire.records.record_batch import BatchHeader, read_header
from tidemark_broker.log.producer_state_entry import SEQUENCES, last_sequence_of
from tidemark_broker.replication.partition import Partition
from tidemark_protocol.ids import NO_EPOCH, Offset
from tidemark_protocol.record_batch_writer import CRC_START

from tests.simulation.checks.producer_expiry import ProducerExpiry
from tests.simulation.checks.violations import (
    SENT_AGAIN_LATE,
    SENT_TO_A_NEWCOMER,
    BeyondPromises,
    Violation,
)


class CommittedLog:
    is_compacted = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.end_offset = 0
        self.led_to = 0  # the highest high watermark that any leader of this history had
        self.led_by_any = 0  # of any history
        self.led: dict[int, tuple[int, Partition]] = {}  # of each leader epoch, and who led
        self.begun_anew: dict[Partition, int] = {}  # from where on a log was dropped last
        self.aged_to: dict[Partition, int] = {}  # where retention by time let it start last
        self._forgotten_to = 0  # below it somebody who began anew may know no producers
        self.history_epoch = -1  # the leader epoch that began the present history; -1: the first
        # Where each history parted from those before it, by the leader epoch that began it.
        self._parted: dict[int, int] = {}
        self._awaited: tuple[int, int] | None = None  # (leader epoch, parting offset) of the next
        self._first_awaited = -1  # the leader epoch of the first grant that is awaited
        # Epochs in whose stead a later one began a history, and how far they share it for sure.
        self._passed_over: list[tuple[range, int]] = []
        self._lost_from: int | None = None
        self._acknowledged: dict[int, int] = {}  # by leader epoch: exclusive end, of acks=all
        self._gaps: list[range] = []  # of offsets that whoever committed them first had damaged
        self._base_offsets: list[int] = []
        self._batches: list[bytes] = []
        # id -> (epoch, last sequence, last offset)
        self._producers: dict[int, tuple[int, int, int]] = {}
        self.expiry = ProducerExpiry()

    # ---- histories

    def await_history(self, leader_epoch: int, parting_offset: int) -> None:
        """In that epoch somebody was elected without proof. Until a leader begins nothing is known
        from there on."""
        if self._awaited is not None:
            parting_offset = min(parting_offset, self._awaited[1])
        else:
            self._first_awaited = leader_epoch
        self._awaited = (leader_epoch, min(parting_offset, self.end_offset))

    def is_awaited(self, leader_epoch: int) -> bool:
        """Whoever begins in that epoch begins a history."""
        return self._awaited is not None and leader_epoch >= self._awaited[0]

    def begin_history(self, leader_epoch: int, parting_offset: int) -> None:
        """Its leader's log parts from this one there: what was committed past that is lost."""
        parted_from = min(parting_offset, self.end_offset)
        kept = bisect_left(self._base_offsets, parted_from)
        if kept and read_header(self._batches[kept - 1]).next_offset > parted_from:
            kept -= 1  # that log begins in the middle of it
            parted_from = self._base_offsets[kept]
        self._lost_from = _least(self._lost_from, parted_from)
        self.history_epoch = leader_epoch
        self._parted[leader_epoch] = parted_from
        if self._awaited is not None:
            passed_over = range(self._first_awaited, leader_epoch)
            self._passed_over.append((passed_over, min(self._awaited[1], parted_from)))
            for epoch in self.led:
                self._record_passed_over(epoch)
        self._awaited = None
        del self._base_offsets[kept:], self._batches[kept:]
        self._gaps = [range(gap.start, min(gap.stop, parted_from)) for gap in self._gaps]
        self.end_offset = parted_from
        self.led_to = min(self.led_to, parted_from)
        for epoch, end in self._acknowledged.items():
            self._acknowledged[epoch] = min(end, parted_from)
        self._remember_sequences()

    @property
    def lost_from(self) -> int | None:
        """The lowest offset from which on committed records may have been lost, if any may."""
        return _least(self._lost_from, None if self._awaited is None else self._awaited[1])

    def may_checker(self, last_offset: int, newest_epoch: int) -> bool:
        """Of a log that was led, or has records, of no later leader epoch than that."""
        if self._awaited is not None and last_offset >= self._awaited[1]:
            return False
        return last_offset < self._common_end(newest_epoch)

    def is_one_history(self, newest_epoch: int) -> bool:
        """All of such a log may be judged."""
        return self._awaited is None and newest_epoch >= self.history_epoch

    def _common_end(self, newest_epoch: int) -> float:
        """Up to there (exclusive) such a log is of the present history."""
        if newest_epoch >= self.history_epoch:
            return inf
        return min(offset for epoch, offset in self._parted.items() if epoch > newest_epoch)

    # ---- what is committed

    def record_led(self, leader_epoch: int, high_watermark: int, replica: Partition) -> None:
        self.led[leader_epoch] = (high_watermark, replica)
        self._record_passed_over(leader_epoch)
        self.led_by_any = max(self.led_by_any, high_watermark)
        self.led_to = int(max(self.led_to, min(high_watermark, self._common_end(leader_epoch))))

    def record_begun_anew(
        self,
        replica: Partition,
        held: Iterable[tuple[BatchHeader, bytes]],
        former_start: int,
        former_end: int,
    ) -> None:
        """It dropped its log, which had these batches, and tells of what lay past both starts."""
        start_offset = replica.log.log_start_offset
        self.begun_anew[replica] = max(former_start, start_offset)
        below = (each for each in held if each[0].base_offset < start_offset)
        had_all = former_end >= start_offset and not any(self.differs(*each) for each in below)
        if not (had_all and self._leader_knows_epoch_at(start_offset - 1)):
            self._forgotten_to = max(self._forgotten_to, start_offset)

    def _leader_knows_epoch_at(self, offset: int) -> bool:
        """Of the last record below its log start: whoever ends there goes on (0087)."""
        if not self.led:
            return False
        _, leader = self.led[max(self.led)]
        return leader.log._checkpoint.epochs.epoch_at(Offset(offset)) != NO_EPOCH

    def _record_passed_over(self, leader_epoch: int) -> None:
        """Whoever leads there was elected without proof, and a later grant was heard of first: what
        it holds past that offset it commits, and no history was begun with it."""
        for epochs, shared_end in self._passed_over:
            if leader_epoch in epochs:
                self._parted[epochs.stop] = min(self._parted[epochs.stop], shared_end)
                self._lost_from = _least(self._lost_from, shared_end)

    def take(self, header: BatchHeader, batch: bytes, who: str) -> None:
        """`batch` lies below the high watermark of `who`, whose log may be judged: the first says
        what it is."""
        if header.base_offset < self.end_offset:
            if self._is_in_gap(header.base_offset):
                self._fill(header, batch)
            self.compare(header, batch, f"below its high watermark {who}")
            return
        if header.base_offset != self.end_offset:
            self._gaps.append(range(self.end_offset, header.base_offset))
            self._producers.clear()
        self._check_sequence(header)
        self._base_offsets.append(header.base_offset)
        self._batches.append(batch)
        self.end_offset = header.next_offset

    def compare(self, header: BatchHeader, batch: bytes, who: str) -> None:
        """Raises Violation unless this is what was committed there."""
        if header.base_offset >= self.end_offset:
            return
        known = self.batch_at(header.base_offset)
        if known is None and self._is_in_gap(header.base_offset):
            return
        if known is None:
            raise Violation(
                "I4",
                f"{self.name}: {who} has a batch from {header.base_offset} to"
                f" {header.last_offset}, no committed batch begins there",
            )
        if known != batch:
            raise Violation(
                "I3",
                f"{self.name}: {who} has other bytes at offset {header.base_offset} (leader epoch"
                f" {header.partition_leader_epoch}) than were committed there (leader epoch"
                f" {int.from_bytes(known[12:16], 'big', signed=True)})",
            )

    def _is_in_gap(self, base_offset: int) -> bool:
        return any(base_offset in gap for gap in self._gaps)

    def _fill(self, header: BatchHeader, batch: bytes) -> None:
        """Somebody has it intact."""
        if self.batch_at(header.base_offset) is None:
            index = bisect_left(self._base_offsets, header.base_offset)
            self._base_offsets.insert(index, header.base_offset)
            self._batches.insert(index, batch)

    def check_is_whole(self, header: BatchHeader, who: str) -> None:
        """A batch in the log of `who`, wherever it is."""

    def may_be_gone(self, header: BatchHeader) -> bool:
        """All records of that batch, whatever their age, from some log."""
        return False

    def has(self, header: BatchHeader) -> bool:
        """It is known what was committed where that batch begins."""
        offset = header.base_offset
        return offset < self.end_offset and not self._is_in_gap(offset)

    def differs(self, header: BatchHeader, batch: bytes) -> bool:
        """Something else was committed where it is."""
        known = self.batch_at(header.base_offset)
        if known is None:  # batches of another history begin elsewhere
            is_past = header.base_offset >= self.end_offset
            return not (is_past or self._is_in_gap(header.base_offset))
        return known != batch

    def differs_in_epoch_only(self, header: BatchHeader, batch: bytes) -> bool:
        """By one bit of it, from what was committed there."""
        known = self.batch_at(header.base_offset)
        return (
            known is not None
            and known[CRC_START:] == batch[CRC_START:]
            and is_one_bit(read_header(known), header)
        )

    def check_shown(self, header: BatchHeader, batch: bytes, who: str) -> None:
        """Raises Violation unless a reader may be shown this."""
        known = self.batch_at(header.base_offset)
        if known is None and self._is_in_gap(header.base_offset):
            return
        if known is None:
            raise Violation(
                "I7",
                f"{who} showed offset {header.base_offset}; committed ends at {self.end_offset}",
            )
        if known[CRC_START:] != batch[CRC_START:]:
            raise Violation(
                "I7",
                f"{who} showed another record at offset {header.base_offset} than was committed"
                " there",
            )
        if known != batch:
            raise Violation(
                "I10",
                f"{who} showed leader epoch {header.partition_leader_epoch} at offset"
                f" {header.base_offset}, committed there is another",
            )

    def batch_at(self, base_offset: int) -> bytes | None:
        index = bisect_left(self._base_offsets, base_offset)
        if index < len(self._base_offsets) and self._base_offsets[index] == base_offset:
            return self._batches[index]
        return None

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the committed batch that holds it; NO_EPOCH where that is unknown."""
        index = bisect_right(self._base_offsets, offset) - 1
        if index < 0:
            return NO_EPOCH
        header = read_header(self._batches[index])
        return header.partition_leader_epoch if offset < header.next_offset else NO_EPOCH

    def acknowledge(
        self,
        base_offset: int,
        sent: bytes,
        who: str,
        leader_epoch: int,
        *,
        is_readable: bool = True,
    ) -> None:
        """acks=all said so for a batch whose bytes, apart from those a leader writes, are these.
        `is_readable` False: the judge could not read all that is committed there."""
        end_offset = base_offset + read_header(sent).last_offset_delta + 1
        if not self.may_checker(end_offset - 1, leader_epoch):
            return
        if not is_readable and end_offset > self.end_offset:
            return
        if end_offset > self.end_offset:
            raise Violation(
                "I6",
                f"{self.name}: {who} acknowledged offset {end_offset - 1}, committed is what is"
                f" below {self.end_offset}",
            )
        known = self.batch_at(base_offset)
        if known is None and self._is_in_gap(base_offset):
            return
        if known is None or known[CRC_START:] != sent[CRC_START:]:
            raise Violation(
                "I6", f"{self.name}: {who} acknowledged offset {base_offset} for another record"
            )
        before = self._acknowledged.get(leader_epoch, 0)
        self._acknowledged[leader_epoch] = max(before, end_offset)

    def acknowledged_end(self, before_epoch: int | None = None) -> int:
        """Exclusive; of acks=all, by leaders of earlier epochs. A leader may hear of its epoch
        when its successor has committed already, maybe in a later history than its own."""
        end = max(
            (
                end
                for epoch, end in self._acknowledged.items()
                if before_epoch is None or epoch < before_epoch
            ),
            default=0,
        )
        if before_epoch is not None:
            end = int(min(end, self._common_end(before_epoch)))
        return end if self._awaited is None else min(end, self._awaited[1])

    def coverage(self) -> Counter[str]:
        return Counter()

    def last_sequences(self) -> Iterator[tuple[int, int, int]]:
        """(producer id, epoch, last sequence) of each whose last batch is known."""
        for producer_id, (epoch, sequence, _) in self._producers.items():
            yield producer_id, epoch, sequence

    def _check_sequence(self, header: BatchHeader) -> None:
        """B8: within an epoch one sequence follows the other, from 0 on; epochs only rise."""
        if header.producer_id < 0:
            return
        known = self._producers.get(header.producer_id)
        self._remember_sequence(header)
        if known is None and self._gaps:
            return
        epoch, first = header.producer_epoch, header.base_sequence
        last_epoch, last, last_offset = known or (-1, -1, self.end_offset)
        expected = (last + 1) % SEQUENCES if epoch == last_epoch else 0
        if epoch < last_epoch or first != expected:
            if first == 0 and self.expiry.may_be_over(header.producer_id, last_epoch, last):
                raise BeyondPromises(SENT_AGAIN_LATE)
            if first == 0 and last_offset < self._forgotten_to:
                raise BeyondPromises(SENT_TO_A_NEWCOMER)
            raise Violation(
                "I8",
                f"{self.name}: producer {header.producer_id} has epoch {epoch} sequence {first} at"
                f" offset {header.base_offset}, after epoch {last_epoch} sequence {last}",
            )

    def _remember_sequences(self) -> None:
        """Of all that is committed: what a gap has of a producer nobody knows, so nothing of before
        it says what comes behind it."""
        self._producers.clear()
        end_offset = 0
        for header in map(read_header, self._batches):
            if header.base_offset != end_offset:
                self._producers.clear()
            self._remember_sequence(header)
            end_offset = header.next_offset
        if end_offset != self.end_offset:
            self._producers.clear()

    def _remember_sequence(self, header: BatchHeader) -> None:
        if header.producer_id >= 0:
            known = (header.producer_epoch, last_sequence_of(header), header.last_offset)
            self._producers[header.producer_id] = known


def is_one_bit(known: BatchHeader, found: BatchHeader) -> bool:
    """What is between their leader epochs."""
    return (known.partition_leader_epoch ^ found.partition_leader_epoch).bit_count() == 1


def _least(*offsets: int | None) -> int | None:
    return min((offset for offset in offsets if offset is not None), default=None)
