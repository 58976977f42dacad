"""Leader and follower cores joined over real logs: what producers, readers and disks see."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_broker.replication.replica_manager import ProduceResult
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, Offset
from tidemark_protocol.partition_state import Member, TopicState

from tests.support.in_process_pool import TOPIC, TOPIC_ID, InProcessPool, a_batch


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[InProcessPool]:
    pool = InProcessPool(tmp_path)
    yield pool
    for number in tuple(pool.brokers):
        pool.kill(number)


def stored(offset: int) -> ProduceResult:
    return ProduceResult(ErrorCode.NONE, Offset(offset), Offset(0))


def errors(results: list[ProduceResult]) -> list[ErrorCode]:
    return [result.error for result in results]


def test_acks_all_is_answered_when_the_whole_isr_has_it(pool: InProcessPool) -> None:
    pool.lead(1)
    first = pool.brokers[1].produce("a", "b")
    second = pool.brokers[1].produce("c")
    pool.replicate(2, rounds=2)
    assert first == []
    pool.replicate(3, rounds=2)
    assert (first, second) == ([stored(0)], [stored(2)])


def test_replicas_are_byte_identical_and_followers_learn_the_watermark(
    pool: InProcessPool,
) -> None:  # I3
    pool.lead(1)
    for number in range(5):
        pool.brokers[1].produce(f"record {number}")
    pool.replicate(rounds=4)
    logs = {broker.log_bytes() for broker in pool.brokers.values()}
    assert len(logs) == 1
    assert [broker.replica().high_watermark for broker in pool.brokers.values()] == [5, 5, 5]


def test_acks_one_and_zero_are_answered_at_once_and_are_invisible_until_committed(
    pool: InProcessPool,
) -> None:
    pool.lead(1)
    assert pool.brokers[1].produce("a", acks=1) == [stored(0)]
    assert pool.brokers[1].produce("b", acks=0) == [stored(1)]
    assert [result.data for result in pool.brokers[1].read(0)] == [b""]
    pool.replicate(rounds=2)
    assert pool.brokers[1].read(0)[0].data == pool.brokers[1].log_bytes()


@pytest.mark.parametrize("acks", [-2, 2, 100])
def test_other_acks_are_refused(pool: InProcessPool, acks: int) -> None:
    pool.lead(1)
    assert errors(pool.brokers[1].produce("a", acks=acks)) == [ErrorCode.INVALID_REQUIRED_ACKS]
    assert pool.brokers[1].replica().log.log_end_offset == 0


def test_acks_all_is_refused_before_anything_is_written_when_the_isr_is_too_small(
    pool: InProcessPool,
) -> None:  # I9
    pool.lead(1, in_sync=[1])
    refused = pool.brokers[1].produce("a")
    assert errors(refused) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert pool.brokers[1].replica().log.log_end_offset == 0
    assert pool.brokers[1].produce("a", acks=1) == [stored(0)]


def test_records_below_min_isr_are_not_committed_until_the_isr_has_grown(
    pool: InProcessPool,
) -> None:
    pool.lead(1, in_sync=[1])
    pool.brokers[1].produce("a", acks=1)
    pool.replicate(2, rounds=2)
    assert pool.brokers[1].replica().high_watermark == 0
    pool.checker(1)
    assert pool.brokers[1].replica().high_watermark == 1


def test_a_produce_that_waits_too_long_is_told_so_once(pool: InProcessPool) -> None:
    pool.lead(1)
    results = pool.brokers[1].produce("a", timeout_ms=200)
    pool.time.run(300)
    assert errors(results) == [ErrorCode.REQUEST_TIMED_OUT]
    pool.replicate(rounds=3)
    assert len(results) == 1
    assert pool.brokers[1].replica().high_watermark == 1  # it stays in the log and commits


def test_timeouts_do_not_disturb_the_order_of_those_behind(pool: InProcessPool) -> None:
    pool.lead(1)
    patient = pool.brokers[1].produce("a", timeout_ms=10_000)
    hasty = pool.brokers[1].produce("b", timeout_ms=100)
    third = pool.brokers[1].produce("c", timeout_ms=10_000)
    pool.time.run(200)
    assert (patient, errors(hasty), third) == ([], [ErrorCode.REQUEST_TIMED_OUT], [])
    pool.replicate(rounds=3)
    assert (patient, third) == ([stored(0)], [stored(2)])


def test_waiting_produces_are_told_when_leadership_is_lost(pool: InProcessPool) -> None:
    pool.lead(1)
    results = pool.brokers[1].produce("a")
    pool.lead(2)
    assert errors(results) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert errors(pool.brokers[1].produce("b")) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_callers_exception_keeps_nobody_waiting(pool: InProcessPool) -> None:
    pool.lead(1)

    def broken(_: ProduceResult) -> None:
        raise RuntimeError("the handler is closed")

    pool.brokers[1].partitions.produce(
        TOPIC, 0, memoryview(a_batch("a")), acks=-1, timeout_ms=1000, done=broken
    )
    results = pool.brokers[1].produce("b")
    pool.replicate(rounds=2)
    assert results == [stored(1)]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (b"nonsense", ErrorCode.CORRUPT_MESSAGE),
        (a_batch("a")[:-1], ErrorCode.CORRUPT_MESSAGE),
        (a_batch("a") + b"\x00", ErrorCode.CORRUPT_MESSAGE),
        (a_batch("a")[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
        (a_batch("x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["nothing", "nonsense", "cut", "trailing byte", "wrong CRC", "too large"],
)
def test_what_is_no_good_batch_is_refused_whole(
    pool: InProcessPool, data: bytes, error: ErrorCode
) -> None:
    pool.lead(1)
    behind_a_good_one = a_batch("good") + data if data else data
    assert errors(pool.brokers[1].produce_bytes(behind_a_good_one)) == [error]
    assert pool.brokers[1].replica().log.log_end_offset == 0


def test_unknown_topics_and_followers_are_told_apart(pool: InProcessPool) -> None:
    pool.lead(1)
    unknown = pool.brokers[1].produce_bytes(a_batch("a"), topic="nobody")
    assert errors(unknown) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert errors(pool.brokers[2].produce("a")) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


# ---- epochs


def test_a_leaders_epoch_is_in_the_log_even_if_nothing_follows(pool: InProcessPool) -> None:
    pool.lead(1)  # KAFKA-7415
    pool.lead(1)
    log = pool.brokers[1].replica().log
    assert log.latest_epoch == 2
    assert log.epoch_start_offset(log.latest_epoch) == 0


def test_a_grant_to_a_former_life_is_not_led(pool: InProcessPool) -> None:  # S2
    pool.lead(1)
    pool.kill(1)
    pool.start(1)
    pool.push()
    assert pool.brokers[1].replica().role == "idle"
    assert errors(pool.brokers[1].produce("a")) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    pool.lead(1)
    assert pool.brokers[1].replica().role == "leader"


def test_an_unreplicated_tail_is_cut_by_epoch_when_its_leader_returns(pool: InProcessPool) -> None:
    pool.lead(1)
    pool.brokers[1].produce("both")
    pool.replicate(rounds=2)
    pool.brokers[1].produce("only here", acks=1)
    pool.brokers[1].produce("and this", acks=1)
    pool.kill(1)
    pool.lead(2, in_sync=[2, 3])
    pool.brokers[2].produce("instead")
    pool.replicate(rounds=3)
    pool.start(1)
    pool.push()
    pool.replicate(rounds=4)
    assert pool.brokers[1].log_bytes() == pool.brokers[2].log_bytes()
    snapshot = next(pool.brokers[1].partitions.snapshots())
    assert (snapshot.truncated_records, snapshot.committed_truncated_records) == (2, 0)


def test_a_restarted_replica_rejoins_with_its_new_broker_epoch(pool: InProcessPool) -> None:
    pool.lead(1)
    pool.brokers[1].produce("a")
    pool.replicate(rounds=2)
    pool.kill(3)
    pool.lead(1, in_sync=[1, 2])
    pool.brokers[1].produce("b")
    pool.replicate(rounds=2)
    pool.start(3)
    pool.push()
    pool.replicate(rounds=3)
    proposal = pool.checker(1)
    assert set(proposal.new_in_sync_replicas) == {pool.member(number) for number in (1, 2, 3)}
    assert pool.brokers[1].replica().state == pool.state


def test_an_entry_of_a_former_life_is_not_fed_by_the_next_one(pool: InProcessPool) -> None:  # S2
    pool.lead(1)
    old_entry = pool.member(3)
    pool.kill(3)
    pool.start(3)
    pool.push()  # the controller has not stripped the entry
    waiting = pool.brokers[1].produce("a", timeout_ms=60_000)
    pool.replicate(rounds=3)
    assert waiting == []
    proposal = pool.checker(1)
    assert old_entry not in proposal.new_in_sync_replicas
    assert Member(BrokerId(3), pool.brokers[3].broker_epoch) in proposal.new_in_sync_replicas
    assert waiting == [stored(0)]


def test_a_replica_that_lost_its_records_is_expelled_at_once(
    pool: InProcessPool, tmp_path: Path
) -> None:  # S7
    pool.lead(1)
    pool.brokers[1].produce("a")
    pool.replicate(rounds=3)
    pool.kill(3)
    for path in (tmp_path / "broker-3").rglob("*.log"):
        path.write_bytes(b"")
    pool.start(3)
    pool.push()
    pool.replicate(3)
    proposal = pool.checker(1)
    assert {member.broker_id for member in proposal.new_in_sync_replicas} == {1, 2}
    pool.replicate(3, rounds=2)
    assert pool.brokers[3].log_bytes() == pool.brokers[1].log_bytes()


def test_a_refused_expand_that_was_not_settled_keeps_the_watermark_waiting(
    pool: InProcessPool,
) -> None:  # S3
    pool.lead(1, in_sync=[1, 2])
    pool.replicate(rounds=1)
    assert len(pool.brokers[1].proposals) == 1  # {1, 2, 3}
    waiting = pool.brokers[1].produce("a")
    pool.replicate(2, rounds=2)
    assert waiting == []
    pool.checker(1, reject=ErrorCode.INELIGIBLE_REPLICA)  # it raised the partition epoch
    leader = pool.brokers[1].replica().leader
    assert leader is not None
    assert leader.maximal_in_sync_replicas == (pool.member(1), pool.member(2))


# ---- long polls


def test_a_parked_fetch_is_woken_once_by_all_appends_of_a_tick(pool: InProcessPool) -> None:
    pool.lead(1)
    pool.replicate(rounds=2)
    sent = pool.send_fetch(2)
    assert sent is not None
    for value in "abc":
        pool.brokers[1].produce(value)
    assert sent.answer is None
    pool.time.run(0)
    assert sent.answer is not None
    sent.apply(pool.time.now_ms)
    assert pool.brokers[2].replica().log.log_end_offset == 3


def test_a_parked_fetch_hears_of_the_watermark_soon_but_not_at_once(pool: InProcessPool) -> None:
    pool.lead(1)
    pool.brokers[1].produce("a")
    pool.replicate(2, 3)
    delayed = pool.send_fetch(2)
    assert delayed is not None
    confirming = pool.send_fetch(3)
    assert confirming is not None
    assert pool.brokers[1].replica().high_watermark == 1
    pool.time.run(5)
    assert delayed.answer is None
    pool.time.run(5)
    assert delayed.answer is not None
    delayed.apply(pool.time.now_ms)
    assert pool.brokers[2].replica().high_watermark == 1


def test_an_idle_fetch_is_answered_empty_after_its_wait(pool: InProcessPool) -> None:
    pool.lead(1)
    pool.replicate(rounds=3)
    sent = pool.send_fetch(2)
    assert sent is not None
    pool.time.run(499)
    assert sent.answer is None
    pool.time.run(1)
    assert sent.answer is not None
    assert sent.answer.topics == ()


def test_parked_fetches_are_answered_when_leadership_is_lost(pool: InProcessPool) -> None:
    pool.lead(1)
    pool.replicate(rounds=3)
    sent = pool.send_fetch(2)
    assert sent is not None
    pool.lead(3)
    pool.time.run(0)
    assert sent.answer is not None
    assert sent.answer.topics[0].partitions[0].error is ErrorCode.FENCED_LEADER_EPOCH


def test_a_reader_waits_for_committed_records(pool: InProcessPool) -> None:
    pool.lead(1)
    reads = pool.brokers[1].read(0, max_wait_ms=1000)
    pool.brokers[1].produce("a")
    pool.time.run(100)
    assert reads == []
    pool.replicate(rounds=2)
    assert [read.data for read in reads] == [pool.brokers[1].log_bytes()]


def test_a_read_ends_at_the_high_watermark(pool: InProcessPool) -> None:  # I7
    pool.lead(1)
    pool.brokers[1].produce("a")
    pool.replicate(rounds=3)
    committed = pool.brokers[1].log_bytes()
    pool.brokers[1].produce("b")
    read = pool.brokers[1].read(0)[0]
    assert (read.data, read.high_watermark, read.log_end_offset) == (committed, 1, 2)


def test_a_readers_wait_ends_and_a_cancelled_one_is_never_answered(pool: InProcessPool) -> None:
    pool.lead(1)
    reads = pool.brokers[1].read(0, max_wait_ms=300)
    cancelled: list[object] = []
    cancel = pool.brokers[1].partitions.fetch(
        TOPIC, 0, 0, max_bytes=100, min_bytes=1, max_wait_ms=300, done=cancelled.append
    )
    cancel()
    pool.time.run(300)
    assert [(read.error, read.data) for read in reads] == [(ErrorCode.NONE, b"")]
    assert cancelled == []


def test_readers_beyond_the_log_are_out_of_range_and_of_a_lost_leader_told_so(
    pool: InProcessPool,
) -> None:
    pool.lead(1)
    assert pool.brokers[1].read(5)[0].error is ErrorCode.OFFSET_OUT_OF_RANGE
    delayed = pool.brokers[1].read(0, max_wait_ms=1000)
    pool.lead(2)
    assert [read.error for read in delayed] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_the_latest_offset_is_hidden_until_a_new_leaders_watermark_reached_its_start(
    pool: InProcessPool,
) -> None:  # KIP-207
    pool.lead(1)
    pool.brokers[1].produce("a")
    pool.replicate(2)
    pool.send_fetch(2)  # acknowledges the record, and never hears the answer
    pool.replicate(3, rounds=2)
    previous, leader = pool.brokers[1], pool.brokers[2]
    assert previous.partitions.offsets(TOPIC, 0).error is ErrorCode.NONE
    assert (previous.replica().high_watermark, leader.replica().high_watermark) == (1, 0)
    pool.lead(2)
    assert leader.partitions.offsets(TOPIC, 0).error is ErrorCode.OFFSET_NOT_AVAILABLE
    pool.replicate(rounds=2)
    assert leader.partitions.offsets(TOPIC, 0).error is ErrorCode.NONE


# ---- topics come and go


def test_a_replica_is_dropped_by_an_explicit_entry_only(pool: InProcessPool) -> None:  # S12
    pool.lead(1)
    pool.brokers[1].produce("a", acks=1)
    partitions = pool.brokers[1].partitions
    image = pool.image()
    absent = type(image)(image.controller_epoch, image.image_version + 1, True, image.brokers, ())
    partitions.apply_push(absent)
    assert partitions.replica(TOPIC, 0) is not None
    deleted = type(image)(
        image.controller_epoch,
        image.image_version + 2,
        False,
        image.brokers,
        (type(image.topics[0])(pool.topic, (), is_deleted=True),),
    )
    partitions.apply_push(deleted)
    assert partitions.replica(TOPIC, 0) is None
    assert any(path.name.endswith("-delete") for path in pool.brokers[1].directory.path.iterdir())


async def digest(pool: InProcessPool, number: int, to_offset: int) -> str:
    return await pool.brokers[number].partitions.replica_digest(TOPIC, 0, to_offset)


def test_digests_of_replicas_agree_below_the_watermark(pool: InProcessPool) -> None:
    pool.lead(1)
    pool.brokers[1].produce("a", "b")
    pool.brokers[1].produce("c")
    pool.replicate(rounds=3)
    pool.brokers[1].produce("only here", acks=1)
    digests = {asyncio.run(digest(pool, number, 3)) for number in (1, 2, 3)}
    assert len(digests) == 1
    assert asyncio.run(digest(pool, 1, 4)) not in digests


def test_a_lag_window_made_shorter_evicts_by_the_new_one(pool: InProcessPool) -> None:
    pool.topic = replace(pool.topic, config={"replica.lag.time.max.ms": "3600000"})
    pool.lead(1)
    pool.replicate(rounds=2)
    pool.brokers[1].produce("a", acks=1)
    pool.topic = replace(pool.topic, config={"replica.lag.time.max.ms": "1000"})
    pool.push()
    for _ in range(3):
        pool.replicate(2, rounds=2)
        pool.time.run(600)
        pool.brokers[1].partitions.on_tick()
    assert [m.broker_id for m in pool.brokers[1].proposals[-1].new_in_sync_replicas] == [1, 2]


def test_a_flush_of_what_was_cut_meanwhile_makes_nothing_durable(tmp_path: Path) -> None:  # S11
    """The follower's log ends where it did when the flush began, with other records in it."""
    topic = TopicState(TOPIC, TOPIC_ID, 1, 2, flush="Always")
    pool = InProcessPool(tmp_path, brokers=(1, 2), topic=topic)
    pool.lead(2)
    pool.brokers[2].produce("never committed", acks=1)
    pool.lead(1)
    pool.brokers[1].produce("a", acks=1)
    follower = pool.brokers[2].replica()
    end, epoch = follower.log.log_end_offset, follower.leader_epoch
    assert end == 1
    truncated = follower.log.truncate_to(Offset(0))
    follower.log.append_as_follower(memoryview(pool.brokers[1].log_bytes()))
    assert (truncated, follower.log.log_end_offset) == (1, end)
    follower.on_flushed(end, epoch, pool.time.now_ms)  # it had begun before the cut
    assert follower.needs_flush
    assert follower.next_fetch(pool.time.now_ms) is None
    follower.log.flush()
    follower.on_flushed(end, epoch, pool.time.now_ms)
    assert follower.next_fetch(pool.time.now_ms) is not None
    for number in (1, 2):
        pool.kill(number)
