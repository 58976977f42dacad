"""A follower's session with a leader, message by message: what it names, and what an answer proves.

A partition that a request does not name is asked as it was named last. So the question that the
leader holds must never be one that the follower's log has left: no older leader epoch, end, or last
epoch. A log that was cut and filled again by another leader may end where it ended.
"""

import asyncio
import random
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    TopicResponse,
    decode_fetch_request,
    encode_fetch_response,
)
from tidemark_broker.kafka_wire.messages.frames import read_request_header
from tidemark_broker.kafka_wire.messages.primitives import Reader
from tidemark_broker.replication.delayed_delete_records import (
    DelayedDeleteRecords,
    DeleteRecordsTarget,
    LowWatermark,
)
from tidemark_broker.replication.follower_session import FollowerSession
from tidemark_broker.replication.leader_endpoint import LeaderEndpoint
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, Offset

from tests.support.in_process_pool import KEY, TOPIC, InProcessPool

LAG_MAX_MS = 10_000
SECOND = 2


class Wire(asyncio.Transport):
    """Broker 2's connection to broker 1; nothing travels by itself."""

    def __init__(self, pool: InProcessPool) -> None:
        super().__init__()
        self.pool = pool
        self.requests: deque[tuple[int, FetchRequest]] = deque()
        self.answers: deque[bytes] = deque()
        self.requested: list[FetchPartition] = []  # all that was ever named
        self.link = FollowerSession()
        self.connection = LeaderEndpoint(BrokerId(1), pool.brokers[SECOND].partitions)
        self.connection.connection_made(self)

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        raise AssertionError("given up")

    close = abort

    def write(self, data: bytes | bytearray | memoryview) -> None:
        reader = Reader(memoryview(bytes(data))[4:])
        header = read_request_header(reader)
        request = decode_fetch_request(reader, header.api_version)
        self.requested += [entry for topic in request.topics for entry in topic.partitions]
        self.requests.append((header.correlation_id, request))

    def deliver_request(self) -> None:
        if not self.requests:
            return
        correlation_id, request = self.requests.popleft()

        def respond(topics: tuple[TopicResponse, ...]) -> None:
            response = FetchResponse(correlation_id, ErrorCode.NONE, topics, 1)
            self.answers.append(b"".join(encode_fetch_response(response)))

        fetches = self.pool.brokers[1].fetches
        fetches.end_now(self.link)
        assert self.link.may_apply(request)
        fetches.handle(request, self.link, respond)

    def deliver_response(self) -> None:
        if self.answers:
            self.connection.data_received(self.answers.popleft())

    def deliver_all(self) -> None:
        for _ in range(6):
            self.deliver_request()
            self.pool.time.run(20)
            self.deliver_response()

    def refresh(self) -> None:
        """As ReplicaFetcherManager does after each push."""
        replica = self.pool.brokers[SECOND].replica()
        follower = replica.follower
        is_ours = follower is not None and follower.leader == 1
        self.connection.follow([replica] if is_ours else [])


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[InProcessPool]:
    pool = InProcessPool(tmp_path, min_insync=1)
    yield pool
    for number in tuple(pool.brokers):
        pool.kill(number)


def is_confirmed(pool: InProcessPool) -> bool:
    follower = pool.brokers[SECOND].replica().follower
    loop_ms = round(asyncio.get_running_loop().time() * 1000)
    return follower is not None and follower.may_serve_readers(loop_ms, lag_max_ms=LAG_MAX_MS)


def test_a_log_cut_and_filled_again_to_the_same_end_is_asked_anew(pool: InProcessPool) -> None:
    async def main() -> None:
        pool.lead(1)
        wire = Wire(pool)
        wire.refresh()
        wire.deliver_all()
        pool.brokers[1].produce("only 1 and 2 have it", acks=1)
        wire.deliver_all()
        before = wire.requested[-1]
        assert (before.fetch_offset, before.last_fetched_epoch) == (1, 1)
        wire.deliver_request()  # it waits there; its answer comes late
        pool.lead(3)
        pool.brokers[3].produce("of another leader", acks=1)
        pool.replicate(2, 1, rounds=4)
        pool.lead(1)
        wire.refresh()
        after = wire.requested[-1]
        assert (after.fetch_offset, after.last_fetched_epoch) == (1, 2)
        assert after.current_leader_epoch == 3
        pool.time.run(500)
        wire.deliver_response()  # of the request before
        assert not is_confirmed(pool)
        wire.deliver_all()
        pool.time.run(500)
        wire.deliver_all()
        assert is_confirmed(pool)
        assert pool.brokers[1].log_bytes() == pool.brokers[2].log_bytes()

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(10))
def test_what_the_session_asks_on_is_what_the_log_is_and_what_is_confirmed_is_a_prefix(
    pool: InProcessPool, seed: int
) -> None:
    chance = random.Random(seed)

    async def main() -> None:
        pool.lead(1)
        wire = Wire(pool)
        wire.refresh()
        for step in range(150):
            match chance.randrange(12):
                case 0:
                    pool.lead(chance.choice((1, 3)))
                    if chance.random() < 0.8:  # else it is told late
                        wire.refresh()
                case 1 | 2:
                    leader = pool.brokers[pool.state.leader]
                    leader.produce(f"record {step}", acks=1)
                case 3 if pool.state.leader == 3:
                    pool.replicate(2)
                case 4:
                    pool.replicate(4 - pool.state.leader)  # the other one that may lead
                case 5:
                    wire.refresh()
                case 6 | 7 | 8:
                    wire.deliver_request()
                case 9 | 10:
                    wire.deliver_response()
                case _:
                    pool.time.run(chance.choice((0, 20, 500)))
            check(pool, wire)

    asyncio.run(main())


def check(pool: InProcessPool, wire: Wire) -> None:
    leader, second = pool.brokers[1].replica(), pool.brokers[SECOND].replica()
    follower = second.follower
    if follower is None or leader.leader is None or follower.leader_epoch != leader.leader_epoch:
        return
    if is_confirmed(pool):
        assert pool.brokers[1].log_bytes().startswith(pool.brokers[SECOND].log_bytes())
    held = wire.link.requested.get(KEY)
    is_settled = not wire.requests and not wire.answers and held is not None
    if is_settled and held.current_leader_epoch == follower.leader_epoch:
        log = second.log
        assert (held.fetch_offset, held.last_fetched_epoch) == (
            log.log_end_offset,
            log.latest_epoch,
        )


def fill(pool: InProcessPool, wire: Wire, count: int) -> None:
    pool.lead(1, in_sync=[1, 2])
    wire.refresh()
    for number in range(count):
        pool.brokers[1].produce(f"{number}", acks=1)
        wire.deliver_all()


def test_deleted_records_are_reported_when_all_live_replicas_have_followed(
    tmp_path: Path,
) -> None:
    pool = InProcessPool(tmp_path, brokers=(1, 2))

    async def main() -> None:
        wire = Wire(pool)
        fill(pool, wire, 6)
        leader = pool.brokers[1]
        watermarks = DelayedDeleteRecords(leader.partitions, leader.fetches)
        leader.partitions.delete_records(TOPIC, 0, Offset(4))
        waits = asyncio.ensure_future(
            watermarks.wait([DeleteRecordsTarget(TOPIC, 0, Offset(4))], 60_000)
        )
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waits.done()
        wire.deliver_all()
        assert pool.brokers[2].replica().log.log_start_offset == 4
        assert wire.requested[-1].log_start_offset == 4  # told in a fetch of its own
        assert await waits == [LowWatermark(ErrorCode.NONE, Offset(4))]

    asyncio.run(main())
    for number in (1, 2):
        pool.kill(number)


def test_a_live_replica_that_says_nothing_is_waited_for_and_a_dead_one_is_not(
    pool: InProcessPool,
) -> None:
    async def main() -> None:
        wire = Wire(pool)
        fill(pool, wire, 3)
        leader = pool.brokers[1]
        watermarks = DelayedDeleteRecords(leader.partitions, leader.fetches)
        leader.partitions.delete_records(TOPIC, 0, Offset(2))
        wire.deliver_all()
        awaited = [
            DeleteRecordsTarget(TOPIC, 0, Offset(2)),
            DeleteRecordsTarget("nowhere", 0, Offset(0)),
        ]
        assert await watermarks.wait(awaited, 1) == [
            LowWatermark(ErrorCode.REQUEST_TIMED_OUT, Offset(-1)),
            LowWatermark(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        pool.fenced.add(3)
        pool.push()
        assert await watermarks.wait(awaited[:1], 1) == [LowWatermark(ErrorCode.NONE, Offset(2))]

    asyncio.run(main())
