"""Compaction and the frames of compressed batches: Java's clients read no linked LZ4 blocks."""

import dataclasses
from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.records.compression import has_linked_blocks
from tidemark_broker.kafka_wire.records.record_batch import split_batches
from tidemark_broker.log import checkpoint_formats
from tidemark_broker.log.disk import OsDisk
from tidemark_broker.log.log_config import LogSettings
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import PartitionLog
from tidemark_protocol.ids import BrokerId, LeaderEpoch, Offset
from tidemark_protocol.record_batch_writer import HEADER_BYTES

from tests.support.compacted_log_fixtures import (
    COMPACTED,
    compact,
    compressed,
    keyed_batch,
    linked,
    pairs_of,
    plan_of,
    put,
    seal,
)
from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import TOPIC_ID, headers_of, open_log, read_all

DISK = OsDisk()
EPOCH = LeaderEpoch(0)
LARGE = "x" * 70_000  # more than a block of LZ4


def linked_frames(log: PartitionLog) -> int:
    data = memoryview(read_all(log))
    batches = split_batches(data, max_batch_bytes=len(data))
    return sum(has_linked_blocks(bytes(batch.data[HEADER_BYTES:])) for batch in batches)


def cleaned_by_an_earlier_version(path: Path, settings: LogSettings = COMPACTED) -> PartitionLog:
    """Two clean segments, the second with a linked frame, and an active one."""
    log = open_log(path, settings=settings)
    fill(log)
    return log


def fill(log: PartitionLog) -> None:
    put(log, ("a", "1"))
    seal(log)
    log.append_as_leader([linked(keyed_batch(("b", LARGE), producer=(7, 3)))], leader_epoch=EPOCH)
    seal(log)
    put(log, ("c", "1"))
    log.cleaned_to = Offset(2)


@pytest.mark.parametrize("codec", range(5))
def test_a_rewritten_batch_is_in_its_codec_and_has_no_linked_blocks(tmp_path, codec):
    log = open_log(tmp_path, settings=COMPACTED)
    batch = compressed(keyed_batch(("a", "1"), ("b", LARGE), ("a", "2"), producer=(7, 3)), codec)
    log.append_as_leader([batch], leader_epoch=EPOCH)
    seal(log)
    compact(log, DISK)
    assert pairs_of(log) == [(1, "b", LARGE), (2, "a", "2")]
    (header,) = headers_of(read_all(log))
    assert (header.compression, header.record_count) == (codec, 2)
    assert (header.producer_id, header.base_sequence, header.last_offset_delta) == (7, 3, 2)
    assert linked_frames(log) == 0


def test_a_batch_that_a_producer_sent_with_linked_blocks_is_packed_again(tmp_path):
    log = open_log(tmp_path, settings=COMPACTED)
    log.append_as_leader([linked(keyed_batch(("a", LARGE)))], leader_epoch=EPOCH)
    seal(log)
    compact(log, DISK)
    assert (pairs_of(log), linked_frames(log)) == ([(0, "a", LARGE)], 0)


def test_a_clean_segment_with_a_linked_frame_is_rewritten_once(tmp_path):
    log = cleaned_by_an_earlier_version(tmp_path)
    before, paths = pairs_of(log), [segment.path for segment in log.segments]
    first = log.segments[0].file
    assert linked_frames(log) == 1
    assert compact(log, DISK) is not None
    assert (pairs_of(log), linked_frames(log)) == (before, 0)
    assert [segment.path for segment in log.segments] == paths
    assert log.segments[0].file is first, "nothing of it is to be packed again"
    assert headers_of(read_all(log))[1].base_sequence == 3
    assert compact(log, DISK) is None


def test_frames_do_not_wait_for_the_dirty_ratio(tmp_path):
    settings = dataclasses.replace(COMPACTED, min_cleanable_dirty_ratio=1.0)
    log = cleaned_by_an_earlier_version(tmp_path, settings)
    seal(log)
    assert compact(log, DISK) is not None
    assert linked_frames(log) == 0
    put(log, ("c", "2"))
    seal(log)
    assert plan_of(log, log.log_end_offset, 10**9) is None


def test_frames_wait_for_a_high_watermark_above_the_clean_part(tmp_path):
    """Just after a start it may be behind: a part of it would pass for all."""
    log = cleaned_by_an_earlier_version(tmp_path)
    assert plan_of(log, Offset(1), 10**9) is None
    assert plan_of(log, Offset(2), 10**9) is not None


def test_what_is_checked_is_remembered_over_a_restart(tmp_path):
    def opened() -> LogManager:
        return LogManager.open(tmp_path, OsDisk(), broker_id=BrokerId(1), settings=COMPACTED)

    directory = opened()
    log = directory.create_log("orders", TOPIC_ID, 0)
    fill(log)
    directory.checkpoint_recovery_points()
    directory.close()
    (tmp_path / checkpoint_formats.FRAMES_CHECKED_TO).unlink()  # as an earlier version leaves it

    directory = opened()
    log = directory.logs[TOPIC_ID, 0]
    assert (log.cleaned_to, log.frames_checked_to) == (2, 0)
    assert compact(log, OsDisk()) is not None
    directory.checkpoint_recovery_points()
    directory.close()
    assert plan_of(opened().logs[TOPIC_ID, 0], Offset(3), 10**9) is None


def test_a_log_without_such_frames_costs_no_write(tmp_path):
    log = open_log(tmp_path, settings=COMPACTED)
    put(log, ("a", "1"))
    seal(log)
    log.cleaned_to = Offset(1)
    disk = FaultyDisk()
    assert compact(log, disk) is not None
    assert (log.frames_checked_to, disk.done) == (1, [])


def test_what_is_cut_off_is_not_checked_any_more(tmp_path):
    log = cleaned_by_an_earlier_version(tmp_path)
    compact(log, DISK)
    log.truncate_to(Offset(1))
    assert (log.cleaned_to, log.frames_checked_to) == (1, 1)
