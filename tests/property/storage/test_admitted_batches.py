"""Whatever a producer packs into a batch: what is admitted can be compacted, looked up, copied and
found again, and raises nothing. Also where a topic took it before it was compacted."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tidemark_broker.kafka_wire.messages.primitives import INT64
from tidemark_broker.kafka_wire.records.record_batch import Batch
from tidemark_broker.log.log_config import LogSettings
from tidemark_broker.log.partition_log import PartitionLog
from tidemark_broker.replication.record_appender import _checked_batches, compaction_error
from tidemark_broker.replication.record_times import timestamp_error
from tidemark_broker.replication.results import ProduceResult

from tests.support.compacted_log_fixtures import COMPACTED, compact, pairs_of, put, seal
from tests.support.crafted_batches import NO_PRODUCER, crafted_batch, crafted_record, zigzag
from tests.support.log_fixtures import (
    NoSyncDisk,
    headers_of,
    killed_and_reopened,
    open_log,
    read_all,
    responses_of,
    verified_copy,
)

FAST = settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
DISK = NoSyncDisk()
MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
NOW_MS = 2**42  # later than any file's time, which counts for batches without timestamps
AFTER_HORIZON_MS = NOW_MS + COMPACTED.delete_retention_ms + 1

odd_times = st.sampled_from([MIN_INT64, MIN_INT64 + 1, -2, -1, 0, NOW_MS, MAX_INT64 - 1, MAX_INT64])
odd_deltas = odd_times | st.sampled_from([1, 2**63, 2**64, -(2**69), 2**69 - 1])
header_bytes = st.sampled_from(
    [
        b"\x00",
        zigzag(1) + zigzag(1) + b"n" + zigzag(-1),
        zigzag(1) + zigzag(1) + b"\xff" + zigzag(0),
        zigzag(1) + zigzag(-1) + zigzag(-1),
        zigzag(-1),
        zigzag(2**40),
        zigzag(3),
        b"\x80" * 12,
    ]
)
producers = st.sampled_from(
    [NO_PRODUCER, NO_PRODUCER, (0, 0, 0), (7, 0, 2**31 - 2), (2**63 - 1, 2**15 - 1, 0)]
)


@st.composite
def record(draw: st.DrawFn, number: int) -> bytes:
    """Most of its numbers are in order, so that most batches open."""
    is_odd = draw(st.integers(0, 9)) == 0
    return crafted_record(
        draw(st.sampled_from([b"a", b"b", b"c", b""])),
        draw(st.sampled_from([b"1", b"", None])),
        offset_delta=draw(st.integers(-1, 5)) if is_odd else number,
        timestamp_delta_ms=draw(odd_deltas if draw(st.booleans()) else st.just(0)),
        headers=draw(header_bytes) if is_odd else b"\x00",
    )


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    count = draw(st.integers(1, 4))
    attributes = draw(st.sampled_from([0, 0, 0, 0x08, 0x40, 0x48, 0x7F80 - 0x8000]))
    return crafted_batch(
        [draw(record(number)) for number in range(count)],
        base_ms=draw(odd_times),
        max_ms=draw(odd_times),
        attributes=attributes,
        codec=draw(st.integers(0, 4)),
        producer=draw(producers),
        body=draw(st.just(None) | st.just(None) | st.just(None) | st.binary(max_size=20)),
    )


def is_admitted(batch: Batch) -> bool:
    """By a topic that is not compacted."""
    taken = _checked_batches(batch.data, len(batch.data))
    return not isinstance(taken, ProduceResult) and (
        timestamp_error(taken, LogSettings(), NOW_MS) is None
    )


def check_look_ups(log: PartitionLog) -> None:
    for requested_ms in (MIN_INT64, -1, 0, 1, NOW_MS, MAX_INT64):
        found = log.offset_for_timestamp(requested_ms)
        if found is not None:
            assert log.log_start_offset <= found[0] < log.log_end_offset
            INT64.pack(found[1])


def check_copies(log: PartitionLog, directory: Path) -> None:
    follower = open_log(directory / "follower", DISK, settings=log.settings)
    data = read_all(log)
    follower.append_as_follower(memoryview(data))
    assert read_all(follower) == data
    assert responses_of(log) == responses_of(verified_copy(log))


@FAST
@given(st.lists(batches(), min_size=1, max_size=4), st.booleans())
def test_what_is_admitted_is_compacted_looked_up_and_copied(
    tried: list[Batch], stops_cleanly: bool
) -> None:
    admitted = [batch for batch in tried if is_admitted(batch)]
    event(f"{len(admitted)} of {len(tried)} admitted")
    opens = compaction_error(admitted) is None
    directory = Path(tempfile.mkdtemp())
    try:
        log = open_log(directory / "log", DISK, settings=COMPACTED)
        for batch in admitted:
            log.append_as_leader([batch], leader_epoch=0)
        put(log, ("b", "new"))
        seal(log)
        check_look_ups(log)
        for now_ms in (NOW_MS, AFTER_HORIZON_MS):
            compact(log, DISK, now_ms=now_ms)
            check_look_ups(log)
            put(log, ("d", "new"))
            seal(log)
        check_copies(log, directory)
        if opens:
            kept = [key for _, key, _ in pairs_of(log) if key != "d"]
            assert len(kept) == len(set(kept)) and "b" in kept
        if stops_cleanly:
            log.close()
        again = killed_and_reopened(log, DISK)
        assert headers_of(read_all(again)) == headers_of(read_all(log))
        check_look_ups(again)
    finally:
        shutil.rmtree(directory)
