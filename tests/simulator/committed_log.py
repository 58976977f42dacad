"""What was committed, remembered outside of every broker: the judge's copy of each partition.

The first replica whose high watermark passes a batch decides its bytes for ever (I3, I4, I7); what
acks=all acknowledged must lie in it (I6), and each producer's sequences are in it in their order,
each once (I8). After an unclean election or one by the longest log nothing is known from where the
new leader's log parts from it.
"""

from bisect import bisect_left, bisect_right

from tidemark_broker.runtime.hosted_replica import HostedReplica
from tidemark_broker.storage.producer_states import SEQUENCES, last_sequence_of
from tidemark_broker.storage.record_batch import CRC_START, BatchHeader, read_header

from tests.simulator.violations import Violation


class CommittedLog:
    def __init__(self, name: str) -> None:
        self.name = name
        self.suspended_from: int | None = None
        self.end_offset = 0
        self.led_to = 0  # the highest high watermark that any leader had
        self.led: dict[int, tuple[int, HostedReplica]] = {}  # of each leader epoch, and who led
        self.acknowledged_end = 0  # exclusive; of acks=all
        self._is_whole = True  # from the first batch on
        self._base_offsets: list[int] = []
        self._batches: list[bytes] = []
        self._producers: dict[int, tuple[int, int]] = {}  # id -> (epoch, last sequence)

    def is_suspended(self, offset: int) -> bool:
        return self.suspended_from is not None and offset >= self.suspended_from

    def note_led(self, leader_epoch: int, high_watermark: int, replica: HostedReplica) -> None:
        self.led_to = max(self.led_to, high_watermark)
        self.led[leader_epoch] = (high_watermark, replica)

    def suspend(self, from_offset: int) -> None:
        """Whoever leads now has nothing from there on, by the topic's or the rule's choice."""
        if self.suspended_from is None or from_offset < self.suspended_from:
            self.suspended_from = from_offset
        self.acknowledged_end = min(self.acknowledged_end, from_offset)

    def take(self, header: BatchHeader, batch: bytes, who: str) -> None:
        """`batch` lies below the high watermark of `who`: the first says what it is."""
        if self.is_suspended(header.next_offset - 1):
            return
        if header.base_offset < self.end_offset:
            self.compare(header, batch, f"below its high watermark {who}")
            return
        if header.base_offset != self.end_offset:  # between them is what nobody may judge
            self._producers.clear()
            self._is_whole = False
        self._note_sequence(header)
        self._base_offsets.append(header.base_offset)
        self._batches.append(batch)
        self.end_offset = header.next_offset

    def compare(self, header: BatchHeader, batch: bytes, who: str) -> None:
        """Raises Violation unless this is what was committed there."""
        if self.is_suspended(header.next_offset - 1) or header.base_offset >= self.end_offset:
            return
        known = self.batch_at(header.base_offset)
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

    def batch_at(self, base_offset: int) -> bytes | None:
        index = bisect_left(self._base_offsets, base_offset)
        if index < len(self._base_offsets) and self._base_offsets[index] == base_offset:
            return self._batches[index]
        return None

    def acknowledge(
        self, base_offset: int, sent: bytes, who: str, *, is_readable: bool = True
    ) -> None:
        """acks=all said so for a batch whose bytes, apart from those a leader writes, are these.
        `is_readable` False: the judge could not read all that is committed there."""
        end_offset = base_offset + read_header(sent).last_offset_delta + 1
        if self.is_suspended(end_offset - 1):
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
        if known is None or known[CRC_START:] != sent[CRC_START:]:
            raise Violation(
                "I6", f"{self.name}: {who} acknowledged offset {base_offset} for another record"
            )
        self.acknowledged_end = max(self.acknowledged_end, end_offset)

    def committed_below(self, offset: int) -> int:
        """How many batches begin below `offset`."""
        return bisect_right(self._base_offsets, offset - 1)

    def _note_sequence(self, header: BatchHeader) -> None:
        """B8: within an epoch one sequence follows the other, from 0 on; epochs only rise."""
        if header.producer_id < 0:
            return
        epoch, first = header.producer_epoch, header.base_sequence
        known = self._producers.get(header.producer_id)
        self._producers[header.producer_id] = (epoch, last_sequence_of(header))
        if known is None and not self._is_whole:
            return
        last_epoch, last = known or (-1, -1)
        expected = (last + 1) % SEQUENCES if epoch == last_epoch else 0
        if epoch < last_epoch or first != expected:
            raise Violation(
                "I8",
                f"{self.name}: producer {header.producer_id} has epoch {epoch} sequence {first} at"
                f" offset {header.base_offset}, after epoch {last_epoch} sequence {last}",
            )
