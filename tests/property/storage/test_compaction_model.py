"""A compacted log, and a follower of it, against a list: whatever is written, compacted, retained,
cut, killed and reopened, the last record of each key is the list's, and offsets have no holes."""

import dataclasses
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tidemark_broker.kafka_wire.records.record_batch import Record
from tidemark_broker.log.partition_log import PartitionLog
from tidemark_broker.log.segment_list import retained_start

from tests.support.compacted_log_fixtures import COMPACTED, compact, keyed_batch, records_of, seal
from tests.support.log_fixtures import (
    NoSyncDisk,
    headers_of,
    killed_and_reopened,
    open_log,
    read_all,
    responses_of,
    verified_copy,
    write_synced_prefix,
)

SETTINGS = dataclasses.replace(
    COMPACTED, segment_bytes=260, index_interval_bytes=100, delete_retention_ms=40
)
pairs = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.none() | st.text("xyz", max_size=9)),
    min_size=1,
    max_size=4,
)


class CompactedLogs(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.disk = NoSyncDisk()
        self.now_ms = 1_000
        self.epoch = 0
        self.high_watermark = 0
        self.model: list[tuple[bytes, bytes | None]] = []  # by offset
        self.starts = {"leader": 0, "follower": 0}
        self.logs = {
            name: open_log(self.root / name, self.disk, recovery_point=None, settings=SETTINGS)
            for name in self.starts
        }

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def committed(self, log: PartitionLog) -> int:
        return min(self.high_watermark, log.log_end_offset)

    # What happens

    @rule(group=pairs, step_ms=st.integers(0, 20), producer_id=st.integers(-1, 2))
    def append(self, group, step_ms, producer_id):
        self.now_ms += step_ms
        sequence = len(self.model) if producer_id >= 0 else -1
        batch = keyed_batch(*group, timestamp_ms=self.now_ms, producer=(producer_id, sequence))
        self.logs["leader"].append_as_leader([batch], leader_epoch=self.epoch)
        self.model += [(k.encode(), None if v is None else v.encode()) for k, v in group]

    @rule()
    def begin_an_epoch(self):
        self.epoch += 1

    @rule(name=st.sampled_from(["leader", "follower"]))
    def roll(self, name):
        if self.logs[name].segments[-1].size_bytes:
            seal(self.logs[name])

    @rule(max_bytes=st.integers(1, 400))
    def replicate(self, max_bytes):
        leader, follower = self.logs["leader"], self.logs["follower"]
        at = follower.log_end_offset
        if at < leader.log_start_offset:
            follower.truncate_fully_and_start_at(leader.log_start_offset)
            self.starts["follower"] = leader.log_start_offset
            return
        data = leader.read(at, max_bytes=max_bytes, end_offset=leader.log_end_offset)
        follower.append_as_follower(memoryview(data))

    @rule()
    def commit_what_both_have(self):
        ends = [log.log_end_offset for log in self.logs.values()]
        self.high_watermark = max(self.high_watermark, min(ends))

    @rule(name=st.sampled_from(["leader", "follower"]), max_keys=st.integers(1, 8))
    def compact(self, name, max_keys):
        self.now_ms += 15
        log = self.logs[name]
        compact(
            log,
            self.disk,
            high_watermark=self.committed(log),
            now_ms=self.now_ms,
            max_keys=max_keys,
        )

    @rule(name=st.sampled_from(["leader", "follower"]), retention_bytes=st.integers(100, 900))
    def retain(self, name, retention_bytes):
        log = self.logs[name]
        limits = dataclasses.replace(SETTINGS, deletes=True, retention_bytes=retention_bytes)
        start = retained_start(
            log.segments,
            limits,
            log_start_offset=log.log_start_offset,
            high_watermark=self.committed(log),
            now_ms=self.now_ms,
        )
        log.advance_log_start(start)
        self.starts[name] = log.log_start_offset  # the checkpoint
        log.delete_segments_below(start)

    @rule(back=st.integers(0, 6))
    def lose_the_uncommitted_end(self, back):
        """Both, as after the leader's death another one has less."""
        offset = max(self.high_watermark, len(self.model) - back)
        for log in self.logs.values():
            log.truncate_to(min(offset, log.log_end_offset))
        end = max(log.log_end_offset for log in self.logs.values())
        self.logs["leader"].truncate_to(end)
        del self.model[self.logs["leader"].log_end_offset :]
        follower = self.logs["follower"]
        follower.truncate_to(min(len(self.model), follower.log_end_offset))
        self.epoch += 1

    @rule(name=st.sampled_from(["leader", "follower"]), is_clean=st.booleans())
    def reopen(self, name, is_clean):
        log = self.logs[name]
        epochs, cleaned_to = log.epoch_entries, log.cleaned_to
        if is_clean:
            log.close()
        point = None if is_clean else log.recovery_point
        self.logs[name] = killed_and_reopened(log, self.disk, recovery_point=point)
        self.logs[name].cleaned_to = cleaned_to
        assert responses_of(self.logs[name]) == responses_of(verified_copy(self.logs[name]))
        assert self.logs[name].recovery.reason == ""
        assert self.logs[name].epoch_entries == epochs

    @rule(name=st.sampled_from(["leader", "follower"]))
    def flush(self, name):
        self.logs[name].flush()

    @rule(name=st.sampled_from(["leader", "follower"]))
    def write_synced_prefix(self, name):
        write_synced_prefix(self.logs[name])

    # What holds

    @invariant()
    def offsets_have_no_holes(self):  # I4, I5
        for log in self.logs.values():
            headers = headers_of(read_all(log))
            epochs = [header.partition_leader_epoch for header in headers]
            assert epochs == sorted(epochs)
            expected = headers[0].base_offset if headers else log.log_end_offset
            for header in headers:
                assert header.base_offset == expected
                expected = header.next_offset
            assert expected == log.log_end_offset
        assert self.logs["leader"].log_end_offset == len(self.model)

    @invariant()
    def records_are_the_lists_and_the_last_of_each_key_is_there(self):
        for log in self.logs.values():
            found = [r for r in records_of(log) if r.offset >= log.log_start_offset]
            for record in found:
                assert (record.key, record.value) == self.model[record.offset]  # I3
            self.check_last_records(log, found)

    def check_last_records(self, log: PartitionLog, found: list[Record]) -> None:
        """Of each key the newest one, unless it is a tombstone: that may be gone, but then so is
        all that it outdates."""
        present = {record.offset for record in found}
        newest = {}
        for offset in range(log.log_start_offset, log.log_end_offset):
            newest[self.model[offset][0]] = offset
        for key, offset in newest.items():
            if offset in present:
                continue
            assert self.model[offset][1] is None, f"the last record of {key!r} is gone"
            older = [r.offset for r in found if r.key == key]
            assert older == [], f"{key!r} was deleted at {offset} and is back from {older}"

    @invariant()
    def nothing_is_compacted_from_the_high_watermark_on(self):
        for log in self.logs.values():
            start = max(self.committed(log), log.log_start_offset)
            present = {record.offset for record in records_of(log)}
            assert set(range(start, log.log_end_offset)) <= present


CompactedLogs.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),
)
TestCompactedLogs = CompactedLogs.TestCase
