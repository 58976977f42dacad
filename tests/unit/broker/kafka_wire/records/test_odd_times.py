"""Records that a producer dated outside of 64 bits, or as far from their batch as 64 bits allow.

Each field fits where the producer writes it; what does not fit is a sum or a difference of them.
"""

import dataclasses
from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.records.batch_rewriting import DELETE_HORIZON
from tidemark_broker.kafka_wire.records.record_batch import Batch, read_records
from tidemark_protocol.ids import LeaderEpoch

from tests.support.compacted_log_fixtures import (
    COMPACTED,
    NOW_MS,
    compact,
    pairs_of,
    put,
    records_of,
    seal,
)
from tests.support.crafted_batches import crafted_batch, crafted_record
from tests.support.log_fixtures import NoSyncDisk, headers_of, open_log, read_all

START_MS = 1_000
MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
DISK = NoSyncDisk()
FAR = 2**69 - 1  # what ten bytes of a delta hold


def dated_batch(base_ms: int, *deltas_ms: int, tombstone: bool = False) -> Batch:
    """Keys `a`, `b`, ... of one batch, whose header admits to nothing."""
    records = [
        crafted_record(
            bytes([ord("a") + number]),
            None if tombstone else b"old",
            offset_delta=number,
            timestamp_delta_ms=delta_ms,
        )
        for number, delta_ms in enumerate(deltas_ms)
    ]
    return crafted_batch(records, base_ms=base_ms, max_ms=START_MS)


@pytest.mark.parametrize(
    "base_ms, delta_ms, dated_ms",
    [
        (START_MS, 5, START_MS + 5),
        (MAX_INT64, 0, MAX_INT64),
        (MIN_INT64, 0, MIN_INT64),
        (MAX_INT64, 1, MIN_INT64),
        (MIN_INT64, -1, MAX_INT64),
        (START_MS, 2**64, START_MS),
        (START_MS, FAR, START_MS - 1),
    ],
)
def test_a_record_is_dated_as_javas_clients_count(base_ms, delta_ms, dated_ms):
    (record,) = read_records(dated_batch(base_ms, delta_ms).data)
    assert record.timestamp_ms == dated_ms


@pytest.mark.parametrize("tombstone", [False, True], ids=["values", "tombstones"])
@pytest.mark.parametrize(
    "base_ms, delta_ms", [(START_MS, FAR), (START_MS, -FAR), (MIN_INT64, 0), (MAX_INT64, 1)]
)
def test_a_batch_of_odd_times_is_compacted_and_its_times_stay(
    tmp_path: Path, base_ms: int, delta_ms: int, tombstone: bool
) -> None:
    """It was taken before the topic was compacted, or by a broker that did not look."""
    log = open_log(tmp_path, DISK, settings=COMPACTED)
    log.append_as_leader(
        [dated_batch(base_ms, delta_ms, delta_ms, tombstone=tombstone)],
        leader_epoch=LeaderEpoch(0),
    )
    dated_ms = records_of(log)[1].timestamp_ms
    put(log, ("a", "new"))
    seal(log)
    assert compact(log, DISK) is not None
    rest = pairs_of(log)
    assert rest == [(1, "b", None if tombstone else "old"), (2, "a", "new")]
    assert records_of(log)[0].timestamp_ms == dated_ms
    assert log.segments[0].max_timestamp_ms == START_MS  # else retention would wait for such a time
    assert bool(headers_of(read_all(log))[0].attributes & DELETE_HORIZON) == tombstone
    put(log, ("c", "1"))
    seal(log)
    compact(log, DISK, now_ms=NOW_MS + COMPACTED.delete_retention_ms + 1)
    assert (1, "b", None) not in pairs_of(log)


@pytest.mark.parametrize("requested_ms", [0, START_MS, MAX_INT64])
@pytest.mark.parametrize("delta_ms", [FAR, -FAR, MAX_INT64])
def test_a_look_up_among_odd_times_tells_a_time_of_64_bits(
    tmp_path: Path, delta_ms: int, requested_ms: int
) -> None:
    log = open_log(tmp_path, DISK)
    log.append_as_leader([dated_batch(START_MS, delta_ms, 0)], leader_epoch=LeaderEpoch(0))
    found = log.offset_for_timestamp(requested_ms)
    assert found is None or MIN_INT64 <= found[1] <= MAX_INT64


def test_tombstones_that_are_to_stay_for_ever_do(tmp_path: Path) -> None:
    for_ever = dataclasses.replace(COMPACTED, delete_retention_ms=MAX_INT64)
    log = open_log(tmp_path, DISK, settings=for_ever)
    put(log, ("a", None))
    seal(log)
    compact(log, DISK)
    assert pairs_of(log) == [(0, "a", None)]
    assert headers_of(read_all(log))[0].base_timestamp_ms == MAX_INT64
    assert records_of(log)[0].timestamp_ms == START_MS
