"""What a look-up by time opens at most; beyond it, the answer is the first offset of the batch."""

from pathlib import Path
from struct import Struct

import pytest
from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder
from tidemark_broker.kafka_wire.records.record_batch import Batch, split_batches
from tidemark_protocol.ids import LeaderEpoch

from tests.support.log_fixtures import batch_of, open_log

START_MS = 1_700_000_000_000
EPOCH = LeaderEpoch(0)
TIME_ENTRY = Struct(">qi")


def packed_batch(count: int, value_bytes: int, codec: int = 1) -> Batch:
    """A record each millisecond, small when it is compressed."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 2**30)
    for offset in range(count):
        builder.append(offset, START_MS + offset, None, bytes(value_bytes), [])
    data = bytes(builder.build())
    return split_batches(memoryview(data), max_batch_bytes=len(data))[0]


@pytest.mark.parametrize(
    "count, value_bytes, found",
    [
        (100, 10, (90, START_MS + 90)),
        (100, 80_000, (90, START_MS + 90)),
        (100, 90_000, (0, START_MS + 99)),
        (50_000, 1, (90, START_MS + 90)),
        (50_001, 1, (0, START_MS + 50_000)),
    ],
)
def test_a_look_up_opens_no_more_than_so_much_of_a_batch(
    tmp_path: Path, count: int, value_bytes: int, found: tuple[int, int]
) -> None:
    log = open_log(tmp_path / "log")
    log.append_as_leader([packed_batch(count, value_bytes)], leader_epoch=LeaderEpoch(0))
    assert log.offset_for_timestamp(START_MS + 90) == found


def test_batches_that_say_more_than_they_hold_are_not_opened_one_after_the_other(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path / "log")
    lying = packed_batch(1, 1)
    data = bytearray(lying.data)
    data[35:43] = (START_MS + 100).to_bytes(8, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    (batch,) = split_batches(memoryview(bytes(data)), max_batch_bytes=len(data))
    for _ in range(10):
        log.append_as_leader([batch], leader_epoch=LeaderEpoch(0))
    assert log.offset_for_timestamp(START_MS + 50) == (8, START_MS + 100)


@pytest.mark.parametrize("codec", [2, 3, 4])
def test_the_first_record_is_found_in_every_codec(tmp_path: Path, codec: int) -> None:
    log = open_log(tmp_path / "log")
    log.append_as_leader([packed_batch(100, 10, codec)], leader_epoch=LeaderEpoch(0))
    assert log.offset_for_timestamp(START_MS + 90) == (90, START_MS + 90)


def test_a_whole_batch_whose_records_do_not_parse_is_no_damage(tmp_path: Path) -> None:
    """Any producer can send one."""
    log = open_log(tmp_path / "log")
    data = bytearray(packed_batch(100, 10).data)
    data[61:] = bytes(len(data) - 61)
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    log.append_as_leader(
        split_batches(memoryview(bytes(data)), max_batch_bytes=len(data)),
        leader_epoch=LeaderEpoch(0),
    )
    assert log.offset_for_timestamp(START_MS + 90) == (0, START_MS + 99)


@pytest.mark.parametrize("corruption", ["emptied", "an earlier time", "a later time"])
def test_a_damaged_latest_time_is_not_believed(tmp_path: Path, corruption: str) -> None:
    """Retention by time would delete too early, or a look-up find nothing."""
    log = open_log(tmp_path / "log")
    for time_ms in (START_MS + 9000, START_MS, START_MS + 1):
        log.append_as_leader([batch_of(bytes(5000), timestamp_ms=time_ms)], leader_epoch=EPOCH)
    log.close()
    path = log.segments[0].path.with_suffix(".timeindex")
    *others, latest = TIME_ENTRY.iter_unpack(path.read_bytes())
    assert others == [] and latest == (START_MS + 9000, 0)
    shifts = {"an earlier time": -8999, "a later time": 1}
    corrupt = b"" if corruption == "emptied" else TIME_ENTRY.pack(latest[0] + shifts[corruption], 0)
    path.write_bytes(corrupt)
    again = open_log(tmp_path / "log", recovery_point=None)
    assert again.segments[0].max_timestamp_ms == START_MS + 9000
    assert again.offset_for_timestamp(START_MS + 2) == (0, START_MS + 9000)
