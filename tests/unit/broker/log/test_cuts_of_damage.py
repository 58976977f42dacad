"""A cut meets a flipped bit in what is to stay: nothing is changed, or what stays is what was."""

import os
from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.records.errors import CorruptBatch
from tidemark_broker.kafka_wire.records.record_batch import read_header
from tidemark_broker.log.partition_log import LogSettings, PartitionLog
from tidemark_protocol.ids import LeaderEpoch, Offset
from tidemark_protocol.record_batch_writer import HEADER_BYTES

from tests.support.log_fixtures import NoSyncDisk, batch_of, open_log, produced_batch, read_all

DISK = NoSyncDisk()
SETTINGS = LogSettings(index_interval_bytes=150)  # an entry for each third batch
CUT_AT = Offset(12)


def a_log(path: Path, *, is_produced: bool) -> PartitionLog:
    """Of more batches of a producer than are kept in memory."""
    log = open_log(path, DISK, settings=SETTINGS)
    for sequence in range(20):
        batch = produced_batch(sequence) if is_produced else batch_of(b"%d" % sequence)
        log.append_as_leader([batch], leader_epoch=LeaderEpoch(0))
    return log


def reported(log: PartitionLog) -> tuple[object, ...]:
    """What a log says of itself, and what its file holds."""
    (segment,) = log.segments
    producers = [(number, list(entry.batches)) for number, entry in log.producers]
    ends = log.log_end_offset, segment.next_offset, segment.size_bytes
    return (*ends, segment.path.stat().st_size, producers)


def positions(data: bytes) -> list[int]:
    found, position = [], 0
    while position < len(data):
        found.append(position)
        position += read_header(data, position).size_bytes
    return found


@pytest.mark.parametrize("is_produced", [False, True])
@pytest.mark.parametrize("batch", [0, 5, 10, 11])
def test_a_cut_changes_nothing_or_leaves_what_was(
    tmp_path: Path, batch: int, is_produced: bool
) -> None:
    """I4, I8. By the header of the last batch that stayed a log said where it ends after a cut,
    maybe far past what it held; a header that could not be read stopped the cut when the file had
    been cut already; and producers were known by what unchecked headers say."""
    log = a_log(tmp_path / "intact", is_produced=is_produced)
    before, intact = reported(log), log.segments[0].path.read_bytes()
    log.truncate_to(CUT_AT)
    after = reported(log)
    begin = positions(intact)[batch]
    log = a_log(tmp_path / "0", is_produced=is_produced)
    for bit in range(0, 8 * HEADER_BYTES, 3):
        flipped = bytearray(intact)
        flipped[begin + bit // 8] ^= 1 << bit % 8
        log.segments[0].path.write_bytes(flipped)
        try:
            log.truncate_to(CUT_AT)
            assert reported(log) == after, f"bit {bit}"
            log = a_log(tmp_path / f"{bit + 1}", is_produced=is_produced)
        except CorruptBatch:
            assert reported(log) == before, f"bit {bit}"
    log.segments[0].path.write_bytes(intact)
    log.truncate_to(CUT_AT)
    assert reported(log) == after


def test_a_cut_before_damage_asks_no_index(tmp_path: Path) -> None:
    """A bit flipped in an index file, too: the log was cut, and then it could not be walked."""
    log = a_log(tmp_path / "log", is_produced=False)
    expected = read_all(log)
    log.close()
    path = log.segments[0].path.with_suffix(".index")
    data = bytearray(path.read_bytes())
    data[7] ^= 1  # the position of the first entry
    path.write_bytes(data)
    log = open_log(tmp_path / "log", DISK, recovery_point=None, settings=SETTINGS)
    corrupt = positions(expected)[6]
    with log.segments[0].path.open("r+b") as file:
        file.seek(corrupt + HEADER_BYTES + 1, os.SEEK_SET)
        file.write(b"damage")
    log.truncate_before_corruption(Offset(6))
    assert (log.log_end_offset, read_all(log)) == (6, expected[:corrupt])
