"""What an unclean election loses is proved by the replicas themselves, in numbers and in digests.

Each test loses committed records on real logs, or takes care to lose none.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c
from tidemark_broker.kafka_wire.records.record_batch import read_header
from tidemark_broker.log.disk import OsDisk
from tidemark_broker.replication.core.replica_digest import IDLE_TURN_MS, SHOWN_FOR_MS
from tidemark_broker.replication.partition_snapshot import PartitionSnapshot
from tidemark_broker.server.background.replica_digests import WRITTEN_EVERY_MS, ReplicaDigests
from tidemark_protocol.ids import Offset
from tidemark_protocol.record_batch_writer import CRC_START

from tests.support.in_process_pool import InProcessBroker, InProcessPool

LARGE = "x" * 900_000  # one record of it fills most of an answer


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[InProcessPool]:
    pool = InProcessPool(tmp_path)
    yield pool
    for number in tuple(pool.brokers):
        pool.kill(number)


def cut(broker: InProcessBroker) -> PartitionSnapshot:
    return next(broker.partitions.snapshots())


def produce(pool: InProcessPool, values: list[str], *followers: int) -> None:
    """To the leader and, committed, to these followers."""
    for value in values:
        pool.brokers[pool.state.leader].produce(value)
        pool.replicate(*followers, rounds=3)  # records, acknowledgement, watermark


def checkpoint_and_kill(pool: InProcessPool, number: int) -> None:
    broker = pool.brokers[number]
    broker.directory.checkpoint_high_watermarks(broker.partitions.high_watermarks())
    pool.kill(number)


def lose(pool: InProcessPool, count: int) -> None:
    """Brokers 1 and 2 commit so many records that broker 3 never gets, and die; 3 leads, as
    unclean.leader.election.enable allows."""
    pool.lead(1, in_sync=[1, 2])
    produce(pool, [f"committed {number}" for number in range(count)], 2)
    checkpoint_and_kill(pool, 1)
    checkpoint_and_kill(pool, 2)
    pool.lead(3, in_sync=[3])


def five_everywhere(pool: InProcessPool) -> None:
    pool.lead(1)
    produce(pool, [f"record {number}" for number in range(5)], 2, 3)


# ---- numbers


def test_who_had_committed_records_counts_those_that_it_cuts(pool: InProcessPool) -> None:
    five_everywhere(pool)
    lose(pool, 7)
    pool.brokers[3].produce("another history", acks=1)
    for number in (1, 2):
        pool.start(number)
        pool.push()
        pool.replicate(number, rounds=4)
        assert pool.brokers[number].log_bytes() == pool.brokers[3].log_bytes()
    counted = [cut(pool.brokers[number]).committed_truncated_records for number in (1, 2, 3)]
    assert counted == [7, 7, 0]


def test_what_was_cut_once_is_no_gap_of_the_next_election(pool: InProcessPool) -> None:
    five_everywhere(pool)
    lose(pool, 7)
    pool.brokers[3].produce("another history", acks=1)
    pool.start(1)
    pool.push()
    pool.replicate(1, rounds=1)  # it cuts, and hears nothing more of broker 3
    pool.kill(3)
    pool.lead(1, in_sync=[1])
    found = cut(pool.brokers[1])
    assert (found.committed_truncated_records, found.election_gap_records) == (7, 0)


def behind_by_two(pool: InProcessPool) -> None:
    """Broker 3 heard that 8 records are committed when an answer brought it the sixth."""
    five_everywhere(pool)
    pool.lead(1, in_sync=[1, 2])
    produce(pool, [LARGE] * 3, 2)
    pool.replicate(3)
    assert pool.brokers[1].replica().high_watermark == 8
    assert pool.brokers[3].replica().log.log_end_offset == 6


def test_a_leader_that_had_heard_of_more_than_it_has_says_how_much(pool: InProcessPool) -> None:
    behind_by_two(pool)
    pool.kill(1)
    pool.kill(2)
    pool.lead(3, in_sync=[3])
    assert cut(pool.brokers[3]).election_gap_records == 2


def test_the_gap_is_latched_for_the_epoch_whatever_is_written(pool: InProcessPool) -> None:
    behind_by_two(pool)
    pool.kill(1)
    pool.kill(2)
    pool.lead(3, in_sync=[3])
    for number in range(10):
        pool.brokers[3].produce(f"more {number}", acks=1)
    latched = cut(pool.brokers[3]).election_gap_records
    pool.lead(3, in_sync=[3])
    assert (latched, cut(pool.brokers[3]).election_gap_records) == (2, 0)


def test_a_checkpoint_above_the_log_is_a_gap(pool: InProcessPool) -> None:
    five_everywhere(pool)
    checkpoint_and_kill(pool, 1)
    (segment,) = (pool.path / "broker-1").glob("*/*.log")
    segment.write_bytes(segment.read_bytes()[:-1])  # its last batch is torn: cut when it starts
    pool.kill(2)
    pool.kill(3)
    pool.start(1)
    pool.lead(1, in_sync=[1])
    assert cut(pool.brokers[1]).election_gap_records == 1


def test_clean_elections_have_no_gap_and_cut_nothing_committed(pool: InProcessPool) -> None:
    five_everywhere(pool)
    for leader, others in ((2, (1, 3)), (3, (1, 2)), (1, (2, 3))):
        pool.lead(leader)
        produce(pool, ["more"], *others)
    pool.replicate(rounds=2)
    for broker in pool.brokers.values():
        found = cut(broker)
        assert (found.committed_truncated_records, found.election_gap_records) == (0, 0)


# ---- digests


def digesting(pool: InProcessPool, number: int) -> ReplicaDigests:
    broker = pool.brokers[number]
    kept = ReplicaDigests(
        broker.partitions, OsDisk(), pool.path / f"broker-{number}", pool.time.clock
    )
    broker.observers.add(kept)
    return kept


def shown(pool: InProcessPool, number: int) -> dict[int, int]:
    """All that an idle replica shows in the course of time."""
    digest = pool.brokers[number].replica().digest
    assert digest is not None
    later_ms = pool.time.now_ms + SHOWN_FOR_MS
    found = [digest.shown(later_ms + turn * IDLE_TURN_MS) for turn in range(64)]
    return {each.boundary: each.digest for each in found if each is not None}


def count(*kept: ReplicaDigests) -> None:
    async def counted() -> None:
        for each in kept:
            await each.pass_once()

    asyncio.run(counted())


def test_leader_and_followers_show_the_same_digests(pool: InProcessPool) -> None:
    five_everywhere(pool)
    count(*(digesting(pool, number) for number in (1, 2, 3)))
    assert shown(pool, 1) == shown(pool, 2) == shown(pool, 3)
    assert sorted(shown(pool, 1)) == [4, 5]


def test_two_histories_differ_until_one_of_them_is_cut(pool: InProcessPool) -> None:
    five_everywhere(pool)
    kept = [digesting(pool, number) for number in (1, 2, 3)]
    count(*kept)
    lose(pool, 7)
    for number in range(7):
        pool.brokers[3].produce(f"another history {number}", acks=1)
    pool.start(1)
    pool.lead(3, in_sync=[3, 1])
    previous, leader = digesting(pool, 1), digesting(pool, 3)
    count(previous)  # it has not asked the new leader yet
    theirs = shown(pool, 1)
    pool.replicate(1, rounds=4)
    count(previous, leader)
    ours = shown(pool, 3)
    assert pool.brokers[3].replica().high_watermark == 12
    assert (theirs[12] == ours[12], theirs[8] == ours[8]) == (False, False)
    assert ours.items() >= shown(pool, 1).items()
    assert 12 in shown(pool, 1)


def test_a_replica_whose_disk_changed_a_byte_shows_another_digest(pool: InProcessPool) -> None:
    """With a CRC that fits, as memory that flips a bit before a write leaves it."""
    five_everywhere(pool)
    checkpoint_and_kill(pool, 2)
    (segment,) = (pool.path / "broker-2").glob("*/*.log")
    data = bytearray(segment.read_bytes())
    size_bytes = read_header(bytes(data)).size_bytes
    data[size_bytes - 2] ^= 1  # of the first record's value
    data[CRC_START - 4 : CRC_START] = crc32c(bytes(data[CRC_START:size_bytes])).to_bytes(4, "big")
    segment.write_bytes(data)
    pool.start(2)
    pool.push()
    pool.replicate(2, rounds=2)
    count(digesting(pool, 1), digesting(pool, 2))
    assert shown(pool, 1)[4] != shown(pool, 2)[4]
    assert shown(pool, 1)[5] == shown(pool, 2)[5]


def test_digests_are_kept_through_a_restart(pool: InProcessPool) -> None:
    five_everywhere(pool)
    before = digesting(pool, 1)
    count(before)
    pool.time.run(WRITTEN_EVERY_MS)
    count(before)  # written down
    pool.kill(1)
    pool.start(1)
    pool.lead(1)
    after = digesting(pool, 1)
    asyncio.run(after.load())
    produce(pool, ["one more"], 2, 3)
    read_from = offsets_read(pool, 1, after)
    assert read_from == [5]
    count(digesting(pool, 2))
    assert shown(pool, 1) == shown(pool, 2)


def offsets_read(pool: InProcessPool, number: int, kept: ReplicaDigests) -> list[int]:
    """Where a pass begins to read."""
    log, offsets = pool.brokers[number].replica().log, []
    read = log.read

    def recorded(offset: Offset, *, max_bytes: int, end_offset: Offset) -> bytes:
        offsets.append(offset)
        return read(offset, max_bytes=max_bytes, end_offset=end_offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "read", recorded)
        count(kept)
    return offsets
