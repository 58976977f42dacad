"""A log against a list: whatever is appended, cut, killed and reopened, both hold the same."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tidemark_broker.kafka_wire.records.record_batch import split_batches
from tidemark_broker.log.errors import DiskFull, OffsetOutOfRange
from tidemark_broker.log.partition_log import LogSettings

from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import (
    ALL,
    batch_of,
    headers_of,
    killed_and_reopened,
    open_log,
    responses_of,
    values_of,
    verified_copy,
    write_synced_prefix,
)

SETTINGS = LogSettings(segment_bytes=400, index_interval_bytes=100, segment_ms=50)
values = st.lists(st.binary(max_size=60), min_size=1, max_size=4)


class LogAgainstAList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp()) / "log"
        self.disk = FaultyDisk()
        self.log = open_log(self.directory, self.disk, settings=SETTINGS)
        self.start = 0
        self.model: list[tuple[int, list[bytes]]] = []  # (epoch, values) of each batch
        self.epoch = 0
        self.clock_ms = 1_000

    def teardown(self) -> None:
        shutil.rmtree(self.directory.parent)

    @property
    def end(self) -> int:
        return self.start + sum(len(batch) for _, batch in self.model)

    def last_batch_epoch(self) -> int:
        return self.model[-1][0] if self.model else -1

    @rule(groups=st.lists(values, min_size=1, max_size=3), step_ms=st.integers(0, 30))
    def append_as_leader(self, groups, step_ms):
        self.clock_ms += step_ms
        batches = [batch_of(*group, timestamp_ms=self.clock_ms) for group in groups]
        appended = self.log.append_as_leader(batches, leader_epoch=self.epoch)
        assert appended.first_offset == self.end
        self.model += [(self.epoch, group) for group in groups]

    @rule(groups=st.lists(values, min_size=1, max_size=3), step=st.integers(0, 2))
    def append_as_follower(self, groups, step):
        """What a leader's log with the same history would send."""
        epoch = max(0, self.last_batch_epoch()) + step
        directory = Path(tempfile.mkdtemp())
        leader = open_log(directory)
        leader.truncate_fully_and_start_at(self.log.log_end_offset)
        batches = [batch_of(*group, timestamp_ms=self.clock_ms) for group in groups]
        leader.append_as_leader(batches, leader_epoch=epoch)
        data = leader.read(leader.log_start_offset, max_bytes=1 << 20, end_offset=ALL)
        shutil.rmtree(directory)
        self.log.append_as_follower(memoryview(data))
        self.model += [(epoch, group) for group in groups]
        self.epoch = max(self.epoch, self.log.latest_epoch)

    @rule(groups=st.lists(values, min_size=1, max_size=2), space_bytes=st.integers(0, 200))
    def append_on_a_nearly_full_disk(self, groups, space_bytes):
        self.disk.space_bytes = space_bytes
        try:
            batches = [batch_of(*group, timestamp_ms=self.clock_ms) for group in groups]
            self.log.append_as_leader(batches, leader_epoch=self.epoch)
            self.model += [(self.epoch, group) for group in groups]
        except DiskFull:
            pass
        finally:
            self.disk.space_bytes = None

    @rule()
    def become_leader_of_a_new_epoch(self):
        self.epoch += 1
        self.log.assign_epoch(self.epoch, self.log.log_end_offset)

    @rule(back=st.integers(0, 12))
    def truncate(self, back):
        offset = max(self.start, self.end - back)
        kept, position = [], self.start
        for epoch, batch in self.model:
            if position + len(batch) > offset:
                break
            kept.append((epoch, batch))
            position += len(batch)
        removed = self.log.truncate_to(offset)
        assert removed == self.end - position
        self.model = kept
        self.epoch = max(self.epoch, self.log.latest_epoch)

    @rule(ahead=st.integers(0, 50))
    def restart_elsewhere(self, ahead):
        offset = self.end + ahead
        self.log.truncate_fully_and_start_at(offset)
        self.start, self.model = offset, []

    @rule()
    def flush(self):
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule()
    def write_synced_prefix(self):
        write_synced_prefix(self.log)

    @rule(is_checkpointed=st.booleans())
    def be_killed_and_reopen(self, is_checkpointed):
        """What need not be verified is known as if it had been."""
        point = self.log.recovery_point if is_checkpointed else 0
        epochs = self.log.epoch_entries
        self.log = killed_and_reopened(self.log, self.disk, recovery_point=point)
        assert self.log.recovery.reason == ""
        assert self.log.epoch_entries == epochs
        assert responses_of(self.log) == responses_of(verified_copy(self.log))

    @rule()
    def be_killed_and_reopen_elsewhere(self):
        self.log = open_log(self.directory, self.disk, settings=SETTINGS)
        assert not list(self.directory.glob("*.synced"))

    @rule()
    def stop_cleanly_and_reopen(self):
        self.log.close()
        self.log = killed_and_reopened(self.log, self.disk, recovery_point=None)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), max_bytes=st.integers(1, 600))
    def read_some(self, data, max_bytes):
        offset = data.draw(st.integers(self.start, self.end - 1))
        end_offset = data.draw(st.integers(offset, self.end))
        found = headers_of(self.log.read(offset, max_bytes=max_bytes, end_offset=end_offset))
        if found:
            assert found[0].base_offset <= offset <= found[0].last_offset
            assert found[-1].next_offset <= end_offset

    @precondition(lambda self: self.model)
    @rule(timestamp_ms=st.integers(900, 2_000))
    def look_up_a_timestamp(self, timestamp_ms):
        found = self.log.offset_for_timestamp(timestamp_ms)
        data = b"".join(
            self.log.read(h.base_offset, max_bytes=1, end_offset=ALL) for h in self.headers()
        )
        batches = split_batches(memoryview(data), max_batch_bytes=1 << 20)
        later = [b.header for b in batches if b.header.max_timestamp_ms >= timestamp_ms]
        assert found == ((later[0].base_offset, later[0].max_timestamp_ms) if later else None)

    def headers(self):
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            (header,) = headers_of(self.log.read(offset, max_bytes=1, end_offset=ALL))
            yield header
            offset = header.next_offset

    @invariant()
    def holds_what_the_list_holds(self):
        expected = [value for _, batch in self.model for value in batch]
        assert values_of(self.log) == list(enumerate(expected, self.start))
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert [h.partition_leader_epoch for h in self.headers()] == [e for e, _ in self.model]

    @invariant()
    def ends_where_it_says(self):
        with pytest.raises(OffsetOutOfRange):
            self.log.read(self.end + 1, max_bytes=1, end_offset=ALL)


LogAgainstAList.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    suppress_health_check=list(HealthCheck),
)
TestLogAgainstAList = LogAgainstAList.TestCase
