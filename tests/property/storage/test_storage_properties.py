"""What must hold for all batches, all places where a file is cut, and every single flipped bit."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tidemark_broker.kafka_wire.records.errors import CorruptBatch
from tidemark_broker.kafka_wire.records.record_batch import (
    NewRecord,
    build_batch,
    read_records,
    split_batches,
)
from tidemark_broker.log.indexes import MalformedIndex, OffsetIndex, TimeIndex
from tidemark_broker.log.partition_log import LogSettings

from tests.support.log_fixtures import (
    NoSyncDisk,
    append,
    files_of,
    headers_of,
    open_log,
    read_all,
    served,
    written,
)

FAST = settings(max_examples=100, suppress_health_check=list(HealthCheck))
fields = st.none() | st.binary(max_size=300)
records = st.builds(
    NewRecord, fields, fields, st.lists(st.tuples(st.text(max_size=9), fields), max_size=3)
)


@FAST
@given(st.lists(st.lists(records, min_size=1, max_size=8), min_size=1, max_size=4))
def test_batches_come_back_as_they_were_built(groups):
    data = b"".join(build_batch(group, timestamp_ms=77) for group in groups)
    batches = split_batches(memoryview(data), max_batch_bytes=len(data))
    found = [
        [(r.key, r.value, list(r.headers)) for r in read_records(batch.data)] for batch in batches
    ]
    assert found == [[(r.key, r.value, list(r.headers)) for r in group] for group in groups]
    assert [batch.header.record_count for batch in batches] == [len(group) for group in groups]


@FAST
@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_refused_as_corrupt_and_nothing_else(data):
    try:
        batches = split_batches(memoryview(data), max_batch_bytes=1000)
    except CorruptBatch:
        return
    assert data == b"" == b"".join(batch.data for batch in batches)


@FAST
@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_damaged_records_are_read_or_refused_as_corrupt_and_nothing_else(group, data):
    batch = bytearray(build_batch(group, timestamp_ms=77))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(list(read_records(memoryview(bytes(batch))))) <= 2**31
    except CorruptBatch:
        pass
    except Exception as error:
        assert type(error).__name__ == "UnsupportedCompression"


@FAST
@given(st.binary(max_size=100))
def test_arbitrary_index_files_are_used_or_refused(data):
    for parse in (lambda: OffsetIndex.from_bytes(data, log_size_bytes=999),
                  lambda: TimeIndex.from_bytes(data)):  # fmt: skip
        try:
            assert parse().to_bytes() == data
        except MalformedIndex:
            continue


SMALL = LogSettings(segment_bytes=230, index_interval_bytes=80)


@pytest.fixture
def stopped(tmp_path):
    """A cleanly stopped log of eight batches in three segments, epochs 1, 2, 5, 6."""
    log = open_log(tmp_path / "stopped", settings=SMALL)
    for number, epoch in enumerate((1, 1, 2, 2, 2, 5, 5, 6)):
        append(log, b"%d" % number, epoch=epoch, timestamp_ms=1_000 + number)
    log.close()
    return log


def test_recovery_keeps_exactly_the_whole_batches_wherever_the_log_was_cut(stopped, tmp_path):
    whole = read_all(stopped)
    ends = []
    for header in headers_of(whole):
        ends.append((ends[-1] if ends else 0) + header.size_bytes)
    files = files_of(stopped)
    names = [name for name in files if name.endswith(".log")]
    before = 0
    for index, name in enumerate(names):
        size_bytes = len(files[name])
        for cut in range(size_bytes):
            left = {n: files[n] for n in files if n not in names[index:]}
            directory = written(tmp_path / "cut", left | {name: files[name][:cut]})
            log = open_log(directory, NoSyncDisk(), settings=SMALL)
            kept = max((end for end in [0, *ends] if end <= before + cut), default=0)
            assert read_all(log) == whole[:kept]
            assert log.recovery.only_a_torn_tail
            assert log.recovery.truncated_bytes == before + cut - kept
            assert all(start <= log.log_end_offset for _, start in log.epoch_entries)
        before += size_bytes


@pytest.mark.parametrize("recovery_point", [0, None], ids=["killed", "stopped cleanly"])
def test_no_flipped_bit_is_ever_served(stopped, tmp_path, recovery_point):
    whole = read_all(stopped)
    files = files_of(stopped)
    name = max(name for name in files if name.endswith(".log"))
    before = len(whole) - len(files[name])
    for bit in range(len(files[name]) * 8):
        flipped = bytearray(files[name])
        flipped[bit // 8] ^= 1 << bit % 8
        directory = written(tmp_path / "flipped", files | {name: bytes(flipped)})
        log = open_log(directory, NoSyncDisk(), recovery_point=recovery_point, settings=SMALL)
        found = served(log)
        assert whole.startswith(found)
        assert before <= len(found) < len(whole), f"bit {bit}"
        if recovery_point is not None:
            assert read_all(log) == found, f"bit {bit}: recovery kept a corrupt batch"


def test_a_bit_flipped_under_an_open_log_is_never_served(stopped):
    whole = read_all(stopped)
    log = open_log(stopped.directory, recovery_point=None, settings=SMALL)
    path = sorted(stopped.directory.glob("*.log"))[1]
    original = path.read_bytes()
    for bit in range(len(original) * 8):
        flipped = bytearray(original)
        flipped[bit // 8] ^= 1 << bit % 8
        with path.open("r+b") as file:
            file.write(flipped)
        found = served(log)
        assert whole.startswith(found)
        assert len(found) < len(whole), f"bit {bit}"
    with path.open("r+b") as file:
        file.write(original)
    assert served(log) == whole
