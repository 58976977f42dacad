"""One replica in one process, looked at again and again: I1, I2, I4, I5, and its part of I3 and I6.

It keeps a copy of the log's batches and reads only what was appended since the last look; after a
truncation, and when compaction replaced segments, it reads everything again. Bytes come from the
simulated file itself, not through the disk's calls, so that looking changes nothing and meets no
fault.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from crc32c import crc32c
from tidemark_broker.kafka_wire.records.record_batch import BatchHeader, CorruptBatch, read_header
from tidemark_broker.log.partition_log import PartitionLog
from tidemark_broker.log.segment import Segment
from tidemark_broker.replication.partition import Partition
from tidemark_protocol.ids import NO_EPOCH, Offset, TopicId
from tidemark_protocol.record_batch_writer import CRC_START

from tests.simulation.checks.cluster_observer import EPOCH_BYTES
from tests.simulation.checks.committed_log import CommittedLog
from tests.simulation.checks.compacted_log import COMPACTION
from tests.simulation.checks.violations import FLIPPED_EPOCH, BeyondPromises, Violation


class Files(Protocol):
    """How to see what is in a segment's file; `ClusterObserver`."""

    def segment_bytes(self, segment: Segment) -> bytearray: ...
    def flipped_positions(self, segment: Segment) -> set[int]: ...

    def is_unreliable(self, log: PartitionLog) -> bool:
        """On a volume in which bits flipped under a running broker."""
        ...

    @property
    def has_flipped_bits(self) -> bool:
        """On any volume: what was compacted may have had them before."""
        ...

    def has_retention(self, topic_id: TopicId) -> bool: ...
    def oldest_retained_ms(self, topic_id: TopicId) -> int | None: ...


def is_corrupt(header: BatchHeader, batch: bytes) -> bool:
    # What a flipped length has past the end of its file is not there, and the rest may be sound.
    return len(batch) < header.size_bytes or crc32c(batch[CRC_START:]) != header.crc


@dataclass(frozen=True, slots=True)
class CopiedBatch:
    header: BatchHeader
    data: bytes
    is_intact: bool  # a flipped bit on this disk is no broken promise until it is served


class ReplicaAudit:
    def __init__(self, who: str, replica: Partition, committed: CommittedLog, files: Files) -> None:
        self.who = who
        self.replica = replica
        self.committed = committed
        self.files = files
        self._seen: tuple[object, ...] = ()
        self._has_change = False
        self._active: Segment | None = None  # as last looked at
        self._high_watermark = -1
        self._log_start_offset = self._log_end_offset = -1
        self._epochs = (-1, -1)
        self._was_leader = False
        self._led_epoch = -1
        self._leads_in = -1  # that epoch, if it leads, or did until the event looked at last
        self._checked_history: int | None = -1  # None: it was judged in part only
        self._taken_of = -1  # the history of which what is below was compared
        self._segments: tuple[Segment, ...] = ()  # of a compacted log, as last looked at
        self.compactions = 0  # that were seen here
        self.aged_records = 0  # that retention by time took
        self._forget_copy()

    def _forget_copy(self) -> None:
        self._batches: list[CopiedBatch] = []
        self.end_offset = -1
        self._taken = 0  # batches compared below the own high watermark
        self._matched = 0  # batches compared below what was acknowledged
        self._first_offset = self.replica.log._segments[0].base_offset
        self._segment_index = 0
        self._position = 0
        self.is_truncated = False  # by damage that a flipped bit may have done

    def has_change(self) -> bool:
        """Since last asked: what is looked at for a client in mid-event nobody else has seen."""
        self.look()
        has_change, self._has_change = self._has_change, False
        return has_change

    def look(self) -> None:
        """In or after any event that may have touched it."""
        replica, committed = self.replica, self.committed
        log = replica.log
        active = log._segments.active
        seen = (
            replica.high_watermark,
            log.log_end_offset,
            log.log_start_offset,
            active,
            active.size_bytes,
            replica.state,
            committed.history_epoch,
            self._compactable_segments(),
            replica.duplicate_batches,
        )
        if seen == self._seen:
            return
        former_start, self._seen = self._log_start_offset, seen
        self._has_change = True
        self._check_watermark()
        if self._may_begin_anew():
            held = ((batch.header, batch.data) for batch in self._batches)
            committed.record_begun_anew(replica, held, former_start, self._log_end_offset)
        self._active = active
        self._check_epochs()
        if not self._is_prefix():
            self._forget_copy()
        self._log_end_offset = log.log_end_offset
        self._copy_new_batches()
        self._check_last_epoch()
        self._take_committed()
        is_whole = self.committed.is_one_history(self.newest_epoch)
        self._checked_history = self.committed.history_epoch if is_whole else None

    @property
    def newest_epoch(self) -> int:
        """The latest leader epoch that it leads in, or has records of. Whoever has a record of an
        epoch has cut off before what the leader of that epoch did not have."""
        last_epoch = self._batches[-1].header.partition_leader_epoch if self._batches else -1
        return max(last_epoch, self._leads_in)

    def may_checker(self, last_offset: int) -> bool:
        return self.committed.may_checker(last_offset, self.newest_epoch)

    def _compactable_segments(self) -> tuple[Segment, ...]:
        """That one was replaced shows in nothing else that is looked at."""
        return tuple(self.replica.log._segments) if self.committed.is_compacted else ()

    def truncated_records(self) -> int:
        """In this process."""
        follower = self.replica.follower
        present = 0 if follower is None else follower.truncated_records
        return self.replica._past_truncated + present

    def parting_offset(self) -> int:
        """Where this log parts from what was committed. Whoever is elected without proof may hold
        other records below its own end: those of a cut that a lost kernel took back. Where it has
        no record in common with what was committed, retention may have taken the place where they
        part: nothing is known then, 0."""
        self.look()
        has_common = False
        for batch in self._batches:
            if not batch.is_intact or self.committed.differs(batch.header, batch.data):
                return batch.header.base_offset if has_common else 0
            has_common = has_common or self.committed.has(batch.header)
        return self.end_offset if has_common else 0

    def check_everything(self) -> None:
        """The whole log from its files, compared anew."""
        self._forget_copy()
        self._seen = ()
        self.look()

    def corrupt(self) -> list[BatchHeader]:
        """As its batches were when they were read."""
        return [batch.header for batch in self._batches if not batch.is_intact]

    def is_valid(self, offset: int) -> bool:
        """Whether it held that one, intact, when it was last looked at."""
        is_corrupt = any(each.base_offset <= offset < each.next_offset for each in self.corrupt())
        return offset < self.end_offset and not is_corrupt

    # ---- parts

    def _check_watermark(self) -> None:
        replica, log = self.replica, self.replica.log
        high_watermark = replica.high_watermark
        if not log.log_start_offset <= high_watermark <= log.log_end_offset:
            raise Violation(
                "I1",
                f"{self.who}: log start {log.log_start_offset}, high watermark {high_watermark},"
                f" log end {log.log_end_offset}",
            )
        if log.log_start_offset > 0 and not self.files.has_retention(replica.topic_id):
            raise Violation(
                "I6", f"{self.who}: the log starts at {log.log_start_offset}, nothing asked for it"
            )
        if high_watermark < self._high_watermark and not self._may_fall():
            raise Violation(
                "I2",
                f"{self.who}: high watermark {self._high_watermark} became {high_watermark}",
            )
        self._high_watermark = high_watermark
        if log.log_start_offset < self._log_start_offset and not self._may_fall():
            raise Violation(
                "I6",
                f"{self.who}: log start {self._log_start_offset} became {log.log_start_offset}",
            )
        if log.log_start_offset > self._log_start_offset >= 0:
            self._check_were_old(log.log_start_offset)
        self._log_start_offset = log.log_start_offset

    def _check_were_old(self, log_start_offset: int) -> None:
        """Retention by time takes what is too old by somebody's clock, and nothing else. How old a
        segment is, what compaction left in it tells: who follows that log start may not have
        compacted its own yet."""
        oldest_retained_ms = self.files.oldest_retained_ms(self.replica.topic_id)
        if oldest_retained_ms is None or self._may_begin_anew():
            return
        self.aged_records += log_start_offset - self._log_start_offset
        self.committed.aged_to[self.replica] = log_start_offset
        for batch in self._batches:
            offset, newest_ms = batch.header.base_offset, batch.header.max_timestamp_ms
            is_gone = self._log_start_offset <= offset < log_start_offset
            is_young = batch.is_intact and newest_ms >= oldest_retained_ms
            if is_gone and is_young and not self.committed.may_be_gone(batch.header):
                raise Violation(
                    "retention",
                    f"{self.who}: the log start {self._log_start_offset} became {log_start_offset},"
                    f" at {offset} is a record of {newest_ms}; all from {oldest_retained_ms} on "
                    f"stay",
                )

    def _may_begin_anew(self) -> bool:
        """A follower that keeps nothing (S32), or ends below where its leader's log starts, drops
        its log whatever the age of its records."""
        follower, segments = self.replica.follower, self.replica.log._segments
        has_truncated = follower is not None and None not in (follower.untruncated, self._active)
        return has_truncated and all(segment is not self._active for segment in segments)

    def _may_fall(self) -> bool:
        """Where another history began, and where a corrupt batch is cut off with all that follows
        it and fetched anew: a re-creation."""
        is_one = self.committed.is_one_history(self.newest_epoch)
        is_same = self._checked_history == self.committed.history_epoch
        return self.is_unreliable or not (is_one and is_same)

    @property
    def is_unreliable(self) -> bool:
        if self.committed.is_compacted:
            return self.files.has_flipped_bits
        return self.files.is_unreliable(self.replica.log)

    def _check_epochs(self) -> None:
        state = self.replica.state
        if state is None:
            return
        epochs = (state.leader_epoch, state.partition_epoch)
        if epochs[0] < self._epochs[0] or epochs[1] < self._epochs[1]:
            raise Violation(
                "I14", f"{self.who}: (leader, partition) epochs {self._epochs} became {epochs}"
            )
        self._epochs = epochs

    def _is_prefix(self) -> bool:
        """The log only grew since the last look: our last batch is where it was."""
        if self._has_other_segments():
            return False
        segments = self.replica.log._segments
        if segments[0].base_offset != self._first_offset:
            return False
        if not self._batches:
            return True
        if self._segment_index >= len(segments):
            return False
        segment, last = segments[self._segment_index], self._batches[-1].data
        if self._position == 0:
            return True
        if segment.size_bytes < self._position:
            return False
        if self.is_unreliable:
            return True  # as far as can be told
        begin = self._position - len(last)
        return self.files.segment_bytes(segment)[begin : self._position] == last

    def _has_other_segments(self) -> bool:
        before, self._segments = self._segments, self._compactable_segments()
        if self._segments[: len(before)] == before:
            return False
        active, first_offset = before[-1], self._segments[0].base_offset
        # One that begins lower begins anew, and may be longer than before by the next look.
        is_anew = first_offset < before[0].base_offset
        is_cut = self.replica.log.log_end_offset < self._log_end_offset
        if not (is_anew or is_cut) and first_offset < active.base_offset:
            self.compactions += 1
            if active not in self._segments:
                raise Violation(COMPACTION, f"{self.who}: {active.path.name} was active, and went")
        return True

    def _copy_new_batches(self) -> None:
        log = self.replica.log
        segments = log._segments
        while self._segment_index < len(segments) and not self.is_truncated:
            segment = segments[self._segment_index]
            if self._position < segment.size_bytes:
                data = self.files.segment_bytes(segment)
                while self._position < segment.size_bytes and not self.is_truncated:
                    self._copy_batch(segment, data)
            if self._segment_index + 1 == len(segments):
                break
            self._segment_index += 1
            self._position = 0
        expected = self.end_offset if self._batches else log.log_end_offset
        if expected == log.log_end_offset or self.is_truncated:
            return
        if any(self._may_have_flipped(segment) for segment in segments):
            self.is_truncated = True  # a length is what the bit changed
        else:
            raise Violation(
                "I10",
                f"{self.who}: its files end at offset {expected}, log end is {log.log_end_offset}",
            )

    def _copy_batch(self, segment: Segment, data: bytearray) -> None:
        position = self._position
        try:
            header = read_header(data, position)
            batch = bytes(data[position : position + header.size_bytes])
            self._check_place(header)
        except (CorruptBatch, Violation) as error:
            if self._may_have_flipped(segment):
                self.is_truncated = True
                return
            if isinstance(error, Violation):
                raise
            raise Violation("I10", f"{self.who}: {segment.path.name}: {error}") from error
        is_intact = not is_corrupt(header, batch)
        if is_intact and self._has_flipped_epoch(header, batch, segment):
            raise BeyondPromises(FLIPPED_EPOCH)
        end = position + header.size_bytes
        if not is_intact and not self._has_flipped_within(segment, range(position, end)):
            raise Violation(
                "I10",
                f"{self.who}: {segment.path.name} is damaged at offset {header.base_offset}, and"
                " no bit was flipped there",
            )
        if not self.is_unreliable:
            self.committed.check_is_whole(header, self.who)
        self.committed.expiry.record_written(header)
        self._batches.append(CopiedBatch(header, batch, is_intact))
        self.end_offset = header.next_offset
        self._position = end

    def _may_have_flipped(self, segment: Segment) -> bool:
        """In that file, or in the one before it: a length that reaches that one's end hides what
        follows. Of what compaction wrote anew it is not known which bits had flipped before; no
        checksum covers where a batch lies and its leader epoch."""
        if self.committed.is_compacted:
            return self.is_unreliable
        segments = self.replica.log._segments
        files = [segment, segments[self._segment_index - 1]] if self._segment_index else [segment]
        return any(self.files.flipped_positions(each) for each in files)

    def _has_flipped_within(self, segment: Segment, positions: range) -> bool:
        # A flipped length may make the range long: it is not walked.
        return any(at in positions for at in self.files.flipped_positions(segment))

    def _has_flipped_epoch(self, header: BatchHeader, batch: bytes, segment: Segment) -> bool:
        """No checksum covers a batch's leader epoch: the epochs' checkpoint is the one witness
        against it, and here it agrees with the batch."""
        if self.committed.is_compacted:  # and may have written anew what had flipped before
            has_flipped = self.is_unreliable
        else:
            flipped = {at - self._position for at in self.files.flipped_positions(segment)}
            has_flipped = not flipped.isdisjoint(EPOCH_BYTES)
        return has_flipped and self.committed.differs_in_epoch_only(header, batch)

    def _check_place(self, header: BatchHeader) -> None:
        if self._batches:
            self._check_continues(header)
        elif header.base_offset != self._first_offset and self._segment_index == 0:
            raise Violation(
                "I4",
                f"{self.who}: begins with offset {header.base_offset}, its first segment"
                f" with {self._first_offset}",
            )
        known_epoch = self.replica.log._checkpoint.epochs.epoch_at(header.base_offset)
        if known_epoch != header.partition_leader_epoch:
            raise Violation(
                "I5",
                f"{self.who}: the batch at {header.base_offset} has leader epoch"
                f" {header.partition_leader_epoch}, the epoch cache says {known_epoch}",
            )

    def _check_continues(self, header: BatchHeader) -> None:
        if header.base_offset != self.end_offset:
            raise Violation(
                "I4", f"{self.who}: offset {header.base_offset} follows {self.end_offset - 1}"
            )
        last_epoch = self._batches[-1].header.partition_leader_epoch
        if header.partition_leader_epoch < last_epoch:
            raise Violation(
                "I5",
                f"{self.who}: leader epoch {header.partition_leader_epoch} at offset"
                f" {header.base_offset} follows epoch {last_epoch}",
            )

    def _check_last_epoch(self) -> None:
        """Whose history an empty log is of, only its file of leader epochs says (I5)."""
        last_offset = Offset(self.replica.log.log_end_offset - 1)
        if self._batches or last_offset < 0 or self.is_unreliable:
            return
        known_epoch = self.replica.log._checkpoint.epochs.epoch_at(last_offset)
        epoch = self.committed.epoch_at(last_offset)
        if NO_EPOCH in (known_epoch, epoch) or known_epoch == epoch:
            return
        if self.may_checker(last_offset):
            raise Violation(
                "I5",
                f"{self.who}: it is empty, the epoch cache says {known_epoch} of offset"
                f" {last_offset}, committed there is leader epoch {epoch}",
            )

    def _take_committed(self) -> None:
        high_watermark = self.replica.high_watermark
        # One that gave up its role in this very event led until then: its disk failed, or the push
        # that names its successor told it first of brokers that it need not wait for any more.
        is_leader = self.replica.leader is not None
        if is_leader or self._was_leader:
            self.record_led()
        self._leads_in = self._led_epoch if is_leader or self._was_leader else -1
        self._was_leader = is_leader
        if self._taken_of != self.committed.history_epoch:
            self._taken_of = self.committed.history_epoch
            self._taken = self._matched = 0
        while self._taken < len(self._batches):
            batch = self._batches[self._taken]
            if batch.header.next_offset > high_watermark:
                break
            if not self.may_checker(batch.header.last_offset):
                break
            if batch.is_intact:
                self._check_was_led_to(batch.header)
                self.committed.take(batch.header, batch.data, self.who)
            self._taken += 1

    def record_led(self) -> None:
        """It leads, or did until it died in this very event."""
        leader = self.replica.leader
        if leader is not None:
            self._led_epoch = leader.leader_epoch
        self.committed.record_led(self._led_epoch, self.replica.high_watermark, self.replica)

    def _check_was_led_to(self, header: BatchHeader) -> None:
        """What is committed is what a leader found so: no follower knows more."""
        committed = self.committed
        # Records that all histories since have: a leader of a former one may have committed them.
        is_common = header.partition_leader_epoch < committed.history_epoch
        if header.next_offset > (committed.led_by_any if is_common else committed.led_to):
            raise Violation(
                "I3",
                f"{self.who}: high watermark {self.replica.high_watermark}, and no leader's was"
                f" above {self.committed.led_to}",
            )

    @property
    def is_readable(self) -> bool:
        """False: a flipped bit keeps the judge from reading on in this log."""
        is_corrupt = self.is_unreliable and bool(self.corrupt())
        return not (self.is_truncated or is_corrupt)

    def could_read(self, offset: int) -> bool:
        """Of what retention took here the leader may know still, as of the last batch of a
        producer; that was committed in a former history, maybe."""
        return self.is_readable and offset >= self.replica.log.log_start_offset

    def written_by(self, producer_id: int) -> Iterator[BatchHeader]:
        """The last one first."""
        return (
            batch.header
            for batch in reversed(self._batches)
            if batch.header.producer_id == producer_id
        )

    def check_holds_acknowledged(self, why: str, before_epoch: int | None = None) -> None:
        """I6: it must hold all that was acknowledged (by leaders of earlier epochs), as `why`
        says."""
        end = self.committed.acknowledged_end(before_epoch)
        log_end_offset = self.replica.log.log_end_offset
        if log_end_offset < end:
            raise Violation(
                "I6",
                f"{self.who}, {why}, ends at {log_end_offset}; acknowledged is all below {end}",
            )
        while self._matched < len(self._batches):
            batch = self._batches[self._matched]
            if batch.header.next_offset > end:
                break
            if batch.is_intact:
                try:
                    self.committed.compare(batch.header, batch.data, f"{self.who}, {why},")
                except Violation as violation:
                    raise Violation("I6", violation.text) from violation
            self._matched += 1
