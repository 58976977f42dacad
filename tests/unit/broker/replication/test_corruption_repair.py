"""A corrupt batch on a replica's disk: never served, reported, cut when it may be, fetched anew."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.records.errors import CorruptBatch
from tidemark_broker.log.errors import LocalLogCorrupt
from tidemark_broker.replication.core.effects import DivergingEpoch, LeaderResponse
from tidemark_broker.replication.partition_observer import PartitionObserver
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, Offset, PartitionEpoch

from tests.support.in_process_pool import (
    KEY,
    InProcessBroker,
    InProcessPool,
    a_produced_batch,
)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[InProcessPool]:
    pool = InProcessPool(tmp_path, brokers=(1, 2, 3))
    pool.lead(1, in_sync=[1, 2, 3])
    for number in range(5):
        pool.brokers[1].produce(f"{number}", acks=1)
    pool.replicate(2, 3, rounds=3)
    assert pool.brokers[1].replica().high_watermark == 5
    yield pool
    for number in tuple(pool.brokers):
        pool.kill(number)


def flip_a_bit(broker: InProcessBroker, offset: int) -> None:
    """In the last byte of the batch of one record at `offset`."""
    log = broker.replica().log
    path = log.segments[0].path
    data = bytearray(path.read_bytes())
    data[len(data) // 5 * (offset + 1) - 1] ^= 1
    with path.open("r+b") as file:
        file.write(data)


def drop(pool: InProcessPool, number: int, *, leader: int) -> None:
    """What the controller does with a replica that is reported failed."""
    members = tuple(m for m in pool.state.in_sync_replicas if m.broker_id != number)
    pool.state = replace(
        pool.state,
        in_sync_replicas=members,
        partition_epoch=PartitionEpoch(pool.state.partition_epoch + 1),
    )
    if leader != pool.state.leader:
        pool.lead(leader, in_sync=[member.broker_id for member in members])
    else:
        pool.push()
    if number in pool.brokers:
        pool.acknowledge_failures(number)


def agree(pool: InProcessPool, number: int) -> None:
    """Its leader hears of the uncut log, and says what of it the two share."""
    pool.replicate(number, rounds=3)
    pool.brokers[number].partitions.on_tick()


def failures(broker: InProcessBroker) -> str:
    return "".join(broker.partitions.corrupt.crc_failures.render())


def test_a_leader_does_not_serve_it_and_reports_itself(pool: InProcessPool) -> None:  # I10
    leader = pool.brokers[1]
    flip_a_bit(leader, 2)
    good = leader.read(0)[0]
    assert (good.error, leader.partitions.failed_replicas) == (ErrorCode.NONE, {})
    bad = leader.read(2)[0]
    assert (bad.error, bad.data) == (ErrorCode.CORRUPT_MESSAGE, b"")
    assert KEY in leader.partitions.failed_replicas
    assert 'where="fetch"} 1' in failures(leader)
    assert leader.storage_errors == []
    assert leader.read(3)[0].error is ErrorCode.NONE


def test_by_a_state_of_before_the_report_nothing_is_cut(pool: InProcessPool) -> None:  # I6
    """Seed 16000588 of the simulator: a follower that had stood still was in sync and elected, and
    did not know of it when it met a corrupt batch. It cut what only its entry counted on."""
    follower = pool.brokers[3]
    drop(pool, 3, leader=1)
    pool.replicate(3, rounds=2)  # upon which its leader proposes that it joins
    flip_a_bit(follower, 2)
    follower.partitions.corrupt.note(
        follower.replica(), Offset(2), CorruptBatch(0, "CRC32C 1", "2"), "compaction"
    )
    follower.partitions.on_tick()
    assert follower.replica().log.log_end_offset == 5
    pool.push()  # the controller heard of it, and lets nobody propose it
    pool.acknowledge_failures(3)
    assert follower.replica().log.log_end_offset == 2


def test_a_follower_is_not_sent_it(pool: InProcessPool) -> None:
    leader = pool.brokers[1]
    pool.kill(3)
    pool.path.joinpath("broker-3").rename(pool.path / "lost")
    pool.start(3)
    flip_a_bit(leader, 2)
    drop(pool, 3, leader=1)
    pool.replicate(3, rounds=3)
    assert pool.brokers[3].replica().log.log_end_offset == 2
    assert KEY in leader.partitions.failed_replicas
    assert 'where="replica"} 1' in failures(leader)


def test_once_it_proves_nothing_it_is_cut_and_fetched_anew(pool: InProcessPool) -> None:
    corrupt = pool.brokers[1]
    flip_a_bit(corrupt, 2)
    corrupt.read(2)
    corrupt.partitions.on_tick()
    assert corrupt.replica().log.log_end_offset == 5, "it is in the ISR"
    drop(pool, 1, leader=2)
    agree(pool, 1)
    log = corrupt.replica().log
    assert log.log_end_offset == 2
    assert corrupt.replica().high_watermark == 2  # I1: re-created
    assert KEY in corrupt.partitions.failed_replicas
    pool.replicate(1, rounds=2)
    corrupt.partitions.on_tick()
    assert corrupt.log_bytes() == pool.brokers[2].log_bytes()
    assert corrupt.partitions.failed_replicas == {}


def test_a_follower_that_is_still_in_sync_keeps_what_it_has(pool: InProcessPool) -> None:  # I6
    """The controller has not heard yet: what it holds counts."""
    corrupt = pool.brokers[1]
    flip_a_bit(corrupt, 2)
    corrupt.read(2)
    pool.lead(2)
    assert pool.state.in_sync_ids == {1, 2, 3}
    corrupt.partitions.on_tick()
    assert corrupt.replica().log.log_end_offset == 5
    assert corrupt.replica().next_fetch(pool.time.now_ms) is None
    assert KEY in corrupt.partitions.failed_replicas


def test_it_is_reported_until_all_that_it_held_is_there_again(pool: InProcessPool) -> None:
    corrupt = pool.brokers[1]
    flip_a_bit(corrupt, 0)
    corrupt.read(0)
    drop(pool, 1, leader=2)
    agree(pool, 1)
    assert corrupt.replica().log.log_end_offset == 0
    sent = pool.send_fetch(1)
    assert sent is not None
    pool.push()
    assert KEY in corrupt.partitions.failed_replicas
    sent.apply(pool.time.now_ms)
    corrupt.partitions.on_tick()
    assert corrupt.replica().log.log_end_offset == 5
    assert corrupt.partitions.failed_replicas == {}


def test_what_it_had_told_its_leader_is_waited_for_too(pool: InProcessPool) -> None:
    """A proposal made of that fetch may be under way still, and land once it is taken back."""
    follower = pool.brokers[3]
    pool.brokers[1].produce("more", acks=1)
    pool.replicate(3)
    assert (follower.replica().log.log_end_offset, follower.replica().high_watermark) == (6, 5)
    flip_a_bit(follower, 2)
    met = CorruptBatch(0, "CRC32C 1", "2")
    follower.partitions.corrupt.note(follower.replica(), Offset(2), met, "compaction")
    drop(pool, 3, leader=1)
    assert follower.replica().log.log_end_offset == 2
    assert follower.replica().corruption is not None
    assert follower.replica().corruption.valid_from == 6


def test_who_may_ask_its_leader_is_woken(pool: InProcessPool) -> None:
    """Of a connection with nothing else to ask for, nothing else would come."""
    corrupt = pool.brokers[1]
    flip_a_bit(corrupt, 2)
    corrupt.read(2)
    woken: list[Offset] = []

    class Woken(PartitionObserver):
        def on_roles_applied(self) -> None:
            woken.append(corrupt.replica().log.log_end_offset)

    corrupt.observers.add(Woken())
    pool.lead(2, in_sync=[2, 3])
    woken.clear()
    pool.acknowledge_failures(1)
    pool.acknowledge_failures(1)
    assert woken == [5], "once: the second answer told nothing new"
    assert corrupt.replica().next_fetch(pool.time.now_ms) is not None


def test_what_its_leader_never_had_is_not_waited_for(pool: InProcessPool) -> None:
    """Seed 49002268 of the simulator: it had cut its log before it asked, so it never heard where
    the two parted, and stood aside until its leader had as much as it once held."""
    pool.kill(3)
    (pool.path / "broker-3").rename(pool.path / "lost")
    pool.start(3)
    corrupt = pool.brokers[1]
    flip_a_bit(corrupt, 2)
    corrupt.read(2)
    pool.lead(3, in_sync=[3])  # an unclean election: it has nothing
    pool.acknowledge_failures(1)
    agree(pool, 1)
    agree(pool, 1)
    assert corrupt.replica().log.log_end_offset == 0
    assert corrupt.partitions.failed_replicas == {}


def test_one_whose_cut_meets_the_damage_knows_what_to_wait_for(pool: InProcessPool) -> None:
    corrupt = pool.brokers[1]
    flip_a_bit(corrupt, 2)
    corrupt.read(2)
    drop(pool, 1, leader=2)
    replica, now_ms = corrupt.replica(), pool.time.now_ms
    fetch = replica.next_fetch(now_ms)
    assert fetch is not None
    response = LeaderResponse(
        ErrorCode.NONE,
        Offset(2),
        Offset(0),
        has_records=False,
        diverging_epoch=DivergingEpoch(fetch.last_fetched_epoch, Offset(2)),
    )
    with pytest.raises(LocalLogCorrupt) as met:
        replica.on_leader_response(fetch, response, memoryview(b""), now_ms)
    corrupt.partitions.corrupt.note(replica, Offset(2), met.value, "replica")
    corrupt.partitions.on_tick()
    assert corrupt.replica().log.log_end_offset == 2
    assert corrupt.partitions.failed_replicas == {}, "nothing more is to come"


def test_one_that_parts_past_its_leaders_end_waits_for_what_that_leader_has(
    tmp_path: Path,
) -> None:
    """Its own epochs say where to cut first, and the leader's log ends before that."""
    pool = InProcessPool(tmp_path, brokers=(1, 2, 3))
    corrupt, leader = pool.brokers[1], pool.brokers[3]
    pool.lead(1, in_sync=[1, 2, 3])
    for number in range(2):
        corrupt.produce_bytes(a_produced_batch(number, "x"), acks=1)
    pool.replicate(2, 3, rounds=3)
    for number in range(2, 5):
        corrupt.produce_bytes(a_produced_batch(number, "x"), acks=1)
    pool.lead(3, in_sync=[3])  # unclean
    leader.produce("y", acks=1)
    pool.lead(1, in_sync=[1])  # unclean again
    for number in range(5, 12):
        corrupt.produce_bytes(a_produced_batch(number, "x"), acks=1)
    path = corrupt.replica().log.segments[0].path
    data = bytearray(path.read_bytes())
    data[len(data) // 12 * 4 - 1] ^= 1
    path.write_bytes(data)
    corrupt.partitions.corrupt.note(
        corrupt.replica(), Offset(3), CorruptBatch(0, "1", "2"), "digest"
    )
    pool.lead(3, in_sync=[3])
    pool.acknowledge_failures(1)
    for _ in range(5):
        sent = pool.send_fetch(1)
        if sent is not None and sent.answer is not None:
            sent.apply(pool.time.now_ms)
            for error in sent.refused:
                assert isinstance(error, LocalLogCorrupt)
                corrupt.partitions.corrupt.note(
                    corrupt.replica(), Offset(error.offset), error, "replica"
                )
        corrupt.partitions.on_tick()
        pool.time.run(100)
    assert corrupt.replica().log.log_end_offset == leader.replica().log.log_end_offset == 3
    assert corrupt.partitions.failed_replicas == {}


def test_damage_met_while_it_is_filled_again_takes_nothing_off_what_is_owed(
    tmp_path: Path,
) -> None:
    """A proposal that came of its log before the first cut may still land (I6)."""
    pool = InProcessPool(tmp_path, brokers=(1, 2, 3))
    leader, corrupt = pool.brokers[1], pool.brokers[3]
    pool.lead(1, in_sync=[1, 2, 3])
    for _ in range(12):
        leader.produce("x" * 400_000, acks=1)  # a fetch brings two of them
    pool.replicate(2, 3, rounds=8)
    drop(pool, 3, leader=1)
    pool.replicate(3, rounds=2)
    assert leader.replica().leader.pending_proposal is not None
    for offset in (4, 2):
        error = CorruptBatch(0, "CRC32C 1", "2")
        corrupt.partitions.corrupt.note(corrupt.replica(), Offset(offset), error, "digest")
        pool.acknowledge_failures(3)
    agree(pool, 3)
    ends = []
    while corrupt.partitions.failed_replicas and len(ends) < 20:
        ends.append(corrupt.replica().log.log_end_offset)
        pool.replicate(3, rounds=1)
        corrupt.partitions.on_tick()
    assert max(ends) < 12 == corrupt.replica().log.log_end_offset


def test_a_leader_that_cannot_read_on_says_all_the_same_that_all_is_shared(
    tmp_path: Path,
) -> None:
    pool = InProcessPool(tmp_path, brokers=(1, 2), min_insync=1)
    leader, corrupt = pool.brokers[1], pool.brokers[2]
    pool.lead(1, in_sync=[1, 2])
    for number in range(4):
        leader.produce(f"{number}", acks=1)
    pool.replicate(2, rounds=3)
    pool.lead(1, in_sync=[1])
    leader.produce("4", acks=1)
    flip_a_bit(leader, 4)
    corrupt.partitions.corrupt.note(
        corrupt.replica(), Offset(2), CorruptBatch(0, "1", "2"), "digest"
    )
    pool.push()
    pool.acknowledge_failures(2)
    for _ in range(4):
        pool.replicate(2)
        corrupt.partitions.on_tick()
        pool.time.run(1100)
    assert corrupt.replica().log.log_end_offset == 4
    assert corrupt.partitions.failed_replicas == {}


def test_one_that_is_alone_goes_on_with_all_but_that_batch(pool: InProcessPool) -> None:
    leader = pool.brokers[1]
    flip_a_bit(leader, 2)
    pool.lead(1, in_sync=[1])
    assert leader.read(2)[0].error is ErrorCode.CORRUPT_MESSAGE
    assert leader.partitions.failed_replicas == {}
    assert leader.read(3)[0].error is ErrorCode.NONE
    assert leader.produce("more", acks=1)[0].error is ErrorCode.NONE
    pool.lead(1, in_sync=[1, 2])
    assert KEY in leader.partitions.failed_replicas  # now somebody else can lead
    assert BrokerId(1) in pool.state.in_sync_ids


def test_a_cut_that_meets_it_is_not_asked_for_at_once_again(pool: InProcessPool) -> None:
    """Nothing is cut, the caller hears that it is this log's own damage."""
    replica, now_ms = pool.brokers[2].replica(), pool.time.now_ms
    data = bytearray(replica.log.segments[0].path.read_bytes())
    data[len(data) // 5 * 3 + 16] ^= 1  # the magic of the batch at offset 3
    replica.log.segments[0].path.write_bytes(data)
    fetch = replica.next_fetch(now_ms)
    assert fetch is not None
    diverging = LeaderResponse(
        ErrorCode.NONE,
        Offset(5),
        Offset(0),
        has_records=False,
        diverging_epoch=DivergingEpoch(fetch.last_fetched_epoch, Offset(4)),
    )
    with pytest.raises(LocalLogCorrupt) as met:
        replica.on_leader_response(fetch, diverging, memoryview(b""), now_ms)
    assert met.value.offset == 4
    assert replica.log.log_end_offset == 5
    assert replica.next_fetch(now_ms) is None
