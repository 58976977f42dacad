"""A start that believes a synced part knows what one knows that verifies all, whatever was cut off
the log's files and whichever bit of them was flipped.

But for damage below the part, which only a reader meets (decision 0074): then the log knows of
itself what it knew before, and serves nothing else.
"""

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tidemark_broker.log.partition_log import LogSettings, PartitionLog
from tidemark_broker.log.synced_prefix import decode_synced_prefix
from tidemark_protocol.ids import LeaderEpoch, Offset

from tests.support.log_fixtures import (
    NoSyncDisk,
    files_of,
    headers_of,
    killed_and_reopened,
    open_log,
    opened_on_the_same_kernel,
    produced_batch,
    read_all,
    responses_of,
    served,
    verified_copy_of,
    write_synced_prefix,
    written,
)

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=80)
Files = dict[str, bytes]


class Killed(NamedTuple):
    """A log as a killed process left it, and what it knew."""

    files: Files
    first_offset: Offset
    log_start_offset: Offset
    whole: bytes
    known: tuple[object, ...]


def known_to(log: PartitionLog) -> tuple[object, ...]:
    """Without a look at its batches."""
    return (
        log.log_end_offset,
        log.epoch_entries,
        {number: entry.window for number, entry in log.producers},
        [(segment.base_offset, segment.size_bytes) for segment in log.segments],
        log.segments[-1].max_timestamp_ms,
    )


def killed(log: PartitionLog) -> Killed:
    first_offset = log.segments[0].base_offset
    return Killed(files_of(log), first_offset, log.log_start_offset, read_all(log), known_to(log))


def append_produced(log: PartitionLog, number: int, *, epoch: int, count: int = 1) -> None:
    """Timestamps that mostly rise, three producers and batches of none."""
    batch = produced_batch(
        number,
        count,
        producer_id=number % 4 - 1,
        timestamp_ms=2_000 + number * (1 if number % 3 else -5),
    )
    log.append_as_leader([batch], leader_epoch=LeaderEpoch(epoch))


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


class Starts(NamedTuple):
    """Of the same files."""

    resumed: PartitionLog
    verified: PartitionLog


def started(directory: Path, before: Killed, changed: Files | None = None) -> Starts:
    written(directory, before.files | (changed or {}))
    start, disk = before.log_start_offset, NoSyncDisk()
    verified = verified_copy_of(directory, SMALL, disk=disk, log_start_offset=start)
    resumed = opened_on_the_same_kernel(directory, disk, settings=SMALL, log_start_offset=start)
    return Starts(resumed, verified)


def check_equal(starts: Starts) -> None:
    resumed, verified = starts
    assert responses_of(resumed) == responses_of(verified)
    assert resumed.recovery.only_a_torn_tail == verified.recovery.only_a_torn_tail


def check_corrupt(starts: Starts, before: Killed) -> bool:
    """Whether the start that resumed had to meet it."""
    resumed, verified = starts
    # Kept below the log's start as it told of producers (S24), and not worth a word when damaged.
    has_lost_its_beginning = resumed.segments[0].base_offset > before.first_offset
    if resumed.recovery.reason or has_lost_its_beginning:
        check_equal(starts)
        return True
    assert known_to(resumed) == before.known
    found = served(resumed)
    assert before.whole.startswith(found)
    assert found.startswith(read_all(verified))  # more where it lies below the log's start
    return False


@pytest.fixture
def resumable(tmp_path: Path) -> Killed:
    """Ten batches in two segments, most of the second in its synced part."""
    log = open_log(tmp_path / "resumable", settings=SMALL)
    for number in range(10):
        append_produced(log, number, epoch=number // 3)
        if number == 8:
            write_synced_prefix(log)
    return killed(log)


def test_wherever_the_log_was_cut(resumable: Killed, tmp_path: Path) -> None:
    """Also before the part's end: what nobody should find."""
    files, whole = resumable.files, resumable.whole
    first, second = (name for name in files if name.endswith(".log"))
    assert f"{Path(second).stem}.synced" in files
    ends = [0]
    for header in headers_of(whole):
        ends.append(ends[-1] + header.size_bytes)
    for cut in range(len(files[second])):
        starts = started(tmp_path / "cut", resumable, {second: files[second][:cut]})
        check_equal(starts)
        kept = max(end for end in ends if end <= len(files[first]) + cut)
        assert read_all(starts.resumed) == whole[:kept]
        assert starts.resumed.recovery.only_a_torn_tail


def test_whichever_bit_of_the_segment_was_flipped(resumable: Killed, tmp_path: Path) -> None:
    files = resumable.files
    _, second = (name for name in files if name.endswith(".log"))
    synced_bytes = decode_synced_prefix(files[f"{Path(second).stem}.synced"]).size_bytes
    met = 0
    bits = range(len(files[second]) * 8)
    for bit in bits:
        corrupt = {second: flipped(files[second], bit)}
        is_met = check_corrupt(started(tmp_path / "flipped", resumable, corrupt), resumable)
        assert is_met or bit // 8 < synced_bytes
        met += is_met
    assert 0 < met < len(bits)


APPEND = st.tuples(st.just("append"), st.integers(1, 3))
GROWING = st.one_of(APPEND, APPEND, APPEND, st.tuples(st.just("begin an epoch"), st.integers(1, 2)))
STEP = st.one_of(
    GROWING,
    GROWING,
    st.tuples(st.just("keep a part"), st.just(1)),
    st.tuples(st.just("cut"), st.integers(1, 6)),
    st.tuples(st.just("retain"), st.integers(6, 20)),
    st.tuples(st.just("be killed"), st.just(1)),
)
STEPS = st.tuples(
    st.lists(GROWING, min_size=8, max_size=16),
    st.lists(STEP, max_size=16),
    st.just([("keep a part", 1)]),
    st.lists(STEP, max_size=5),
).map(lambda parts: [step for part in parts for step in part])


def log_of(directory: Path, steps: list[tuple[str, int]]) -> PartitionLog:
    log, epoch = open_log(directory, NoSyncDisk(), settings=SMALL), 0
    for number, (step, count) in enumerate(steps):
        end = log.log_end_offset
        match step:
            case "append":
                append_produced(log, number, epoch=epoch, count=count)
            case "begin an epoch":
                epoch += count
            case "keep a part":
                write_synced_prefix(log)
            case "cut":
                log.truncate_to(Offset(max(log.log_start_offset, end - count)))
            case "retain":
                log.advance_log_start(Offset(max(0, end - count)))
                log.delete_segments_below(log.log_start_offset)
            case "be killed":
                log = killed_and_reopened(log, NoSyncDisk())
    return log


@settings(max_examples=300, suppress_health_check=list(HealthCheck), deadline=None)
@given(steps=STEPS, data=st.data())
def test_whatever_the_log_went_through(steps, data):
    root = Path(tempfile.mkdtemp())
    try:
        before = killed(log_of(root / "log", steps))
        check_equal(started(root / "again", before))
        names = [name for name in sorted(before.files) if name.endswith((".log", ".synced"))]
        name = data.draw(st.sampled_from(names))
        content = before.files[name]
        if not content:
            return
        bit = data.draw(st.integers(0, len(content) * 8 - 1))
        cut, corrupt = {name: content[: bit // 8]}, {name: flipped(content, bit)}
        check_equal(started(root / "again", before, cut))
        starts = started(root / "again", before, corrupt)
        if name.endswith(".synced"):
            check_equal(starts)
        else:
            check_corrupt(starts, before)
    finally:
        shutil.rmtree(root)
