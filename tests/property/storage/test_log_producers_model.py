"""Producer states against a list: whatever is appended, cut, deleted, killed and reopened, a log
knows of each producer what the list of its batches says, and no more."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tidemark_broker.log.errors import DiskFull
from tidemark_broker.log.partition_log import LogSettings
from tidemark_broker.log.producer_state_entry import SEQUENCES, WINDOW_BATCHES
from tidemark_protocol.ids import LeaderEpoch, Offset

from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import (
    batch_of,
    killed_and_reopened,
    open_log,
    produced_batch,
    responses_of,
    verified_copy,
    write_synced_prefix,
)

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)
producer_ids = st.integers(1, 3)
Known = tuple[int, int, int, int]  # producer epoch, first and last sequence, first offset


class ProducersAgainstAList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp()) / "log"
        self.disk = FaultyDisk()
        self.log = open_log(self.directory, self.disk, settings=SMALL)
        self.end = 0
        self.start = 0
        self.epoch = LeaderEpoch(0)
        self.batches: list[tuple[int, Known, int]] = []  # producer id, what, offset after it

    def teardown(self) -> None:
        shutil.rmtree(self.directory.parent)

    def window(self, producer_id: int) -> list[Known]:
        known = [what for owner, what, _ in self.batches if owner == producer_id]
        return [what for what in known[-WINDOW_BATCHES:] if what[0] == known[-1][0]]

    def following(self, producer_id: int) -> tuple[int, int]:
        """(epoch, sequence) of the batch that may come next."""
        window = self.window(producer_id)
        return (window[-1][0], (window[-1][2] + 1) % SEQUENCES) if window else (0, 0)

    def append(self, producer_id: int, epoch: int, sequence: int, count: int) -> None:
        batch = produced_batch(sequence, count, producer_id=producer_id, epoch=epoch)
        self.log.append_as_leader([batch], leader_epoch=self.epoch)
        last = (sequence + count - 1) % SEQUENCES
        self.batches.append((producer_id, (epoch, sequence, last, self.end), self.end + count))
        self.end += count

    @rule(producer_id=producer_ids, count=st.integers(1, 3))
    def produce(self, producer_id, count):
        self.append(producer_id, *self.following(producer_id), count)

    @rule(producer_id=producer_ids, count=st.integers(1, 3))
    def produce_across_the_wrap(self, producer_id, count):
        """A follower notes what it is given."""
        self.append(producer_id, self.following(producer_id)[0], SEQUENCES - 1, count)

    @rule(producer_id=producer_ids)
    def begin_a_new_epoch(self, producer_id):
        self.append(producer_id, self.following(producer_id)[0] + 1, 0, 1)

    @rule()
    def append_without_a_producer(self):
        self.log.append_as_leader([batch_of(b"x")], leader_epoch=self.epoch)
        self.end += 1

    @rule(producer_id=producer_ids, space_bytes=st.integers(0, 100))
    def append_on_a_full_disk(self, producer_id, space_bytes):
        self.disk.space_bytes = space_bytes
        try:
            self.append(producer_id, *self.following(producer_id), 2)
        except DiskFull:
            pass
        finally:
            self.disk.space_bytes = None

    @rule(back=st.integers(0, 30))
    def truncate_and_lead_again(self, back):
        offset = max(self.start, self.end - back)
        self.log.truncate_to(Offset(offset))
        self.end = self.log.log_end_offset
        self.batches = [batch for batch in self.batches if batch[2] <= self.end]
        self.epoch = LeaderEpoch(self.epoch + 1)
        self.log.assign_epoch(self.epoch, self.log.log_end_offset)

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def delete_old_segments(self, data):
        offset = data.draw(st.integers(self.start, self.end))
        if self.log.advance_log_start(Offset(offset)):
            self.start = offset
        self.log.delete_segments_below(Offset(self.start))

    @rule()
    def flush(self):
        self.log.flush()

    @rule()
    def write_synced_prefix(self):
        write_synced_prefix(self.log)

    @rule(is_checkpointed=st.booleans())
    def be_killed_and_reopen(self, is_checkpointed):
        self.reopen(self.log.recovery_point if is_checkpointed else Offset(0))
        assert responses_of(self.log) == responses_of(verified_copy(self.log))

    @rule()
    def stop_cleanly_and_reopen(self):
        self.log.close()
        self.reopen(None)

    def reopen(self, recovery_point):
        self.log = killed_and_reopened(
            self.log,
            self.disk,
            recovery_point=recovery_point,
            log_start_offset=Offset(self.start),
        )
        assert self.log.recovery.reason == ""

    @invariant()
    def knows_what_the_list_says(self):
        found = {
            producer_id: [
                (b.producer_epoch, b.first_sequence, b.last_sequence, b.first_offset)
                for b in entry.window
            ]
            for producer_id, entry in self.log.producers
        }
        expected = {owner: self.window(owner) for owner, _, _ in self.batches}
        assert found == expected


TestProducersAgainstAList = ProducersAgainstAList.TestCase
TestProducersAgainstAList.settings = settings(
    max_examples=60,
    stateful_step_count=40,
)
