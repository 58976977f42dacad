"""What the Kafka listener holds of its clients is bounded, and nobody starves for it."""

import asyncio
import time
from pathlib import Path
from typing import Any, cast

import pytest
from tidemark_broker.kafka.network.connection import KafkaConnection
from tidemark_broker.kafka.network.limits import ListenerLimits
from tidemark_broker.kafka.network.memory_pool import PATIENCE_MS, MemoryLimits, MemoryPool
from tidemark_broker.kafka_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
)
from tidemark_broker.kafka_wire.messages.primitives import INT32, unsigned_varint
from tidemark_broker.kafka_wire.messages.topics import CREATE_TOPICS_API
from tidemark_broker.log.partition_log import PartitionLog
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.topic_messages import TopicsRequest, TopicsResponse

from tests.support.in_process_pool import TOPIC, TOPIC_ID, a_batch
from tests.support.kafka_test_client import (
    API_VERSIONS_REQUEST,
    Client,
    KafkaTestClient,
    fetch,
    framed,
    produce,
    with_kafka_client,
)
from tests.support.simulated_time import SimulatedTime
from tests.support.waiting import HANG_SECONDS, eventually

KIB = 1024
SMALL = ListenerLimits(
    memory=MemoryLimits(requests=1024 * KIB, large_requests=2048 * KIB, answers=2048 * KIB)
)


class FakeReservation:
    def __init__(self, memory: MemoryPool) -> None:
        self.is_peer = False
        self.partial = 0
        self.unread = 0
        self.unanswered = 0
        self.looked = 0
        self.refused: list[str] = []
        memory.join(self)

    def check_again(self) -> None:
        self.looked += 1

    def partial_bytes(self) -> int:
        return self.partial

    def unanswered_bytes(self, patience_s: float) -> int:
        return self.unanswered

    def unread_bytes(self) -> int:
        return self.unread

    def reject(self, kind: str, reason: str) -> None:
        self.refused.append(kind)


def small_memory() -> tuple[MemoryPool, SimulatedTime]:
    time = SimulatedTime()
    return MemoryPool(MemoryLimits(1000, 1000, 1_000_000), time, time.clock), time


def test_everybody_looks_again_when_a_pool_is_full_and_when_a_quarter_is_free() -> None:
    memory, time = small_memory()
    holders = [FakeReservation(memory) for _ in range(3)]
    memory.requests.take(999)
    assert [reservation.looked for reservation in holders] == [0, 0, 0]
    memory.requests.take(1)
    assert [reservation.looked for reservation in holders] == [1, 1, 1]
    memory.requests.give_back(249)
    time.run(100)
    assert memory.requests.is_full
    memory.requests.give_back(1)
    time.run(1)
    assert [reservation.looked for reservation in holders] == [2, 2, 2]


def test_large_requests_get_their_place_smallest_first() -> None:
    memory, _ = small_memory()
    first, large, small = (FakeReservation(memory) for _ in range(3))
    assert memory.reserve(first, 900)
    assert not memory.reserve(large, 800)
    assert not memory.reserve(small, 300)
    memory.release_large(memory.keep_reserved(first))
    assert memory.is_reserved(small) and not memory.is_reserved(large)
    memory.forget(small)
    assert memory.is_reserved(large)


def test_the_largest_have_one_place_beside_those_of_the_others() -> None:
    memory, _ = small_memory()
    slow, next_one = FakeReservation(memory), FakeReservation(memory)
    others = [FakeReservation(memory) for _ in range(5)]
    assert memory.reserve(slow, 5000)
    assert not memory.reserve(next_one, 251)
    assert [memory.reserve(each, 250) for each in others] == [True] * 4 + [False]
    memory.forget(others[0])
    assert memory.is_reserved(others[4]) and not memory.is_reserved(next_one)
    memory.release_large(memory.keep_reserved(slow))
    assert memory.is_reserved(next_one)


def test_who_holds_a_place_that_others_wait_for_and_does_not_move_is_cut() -> None:
    memory, time = small_memory()
    stuck, waits = FakeReservation(memory), FakeReservation(memory)
    assert memory.reserve(stuck, 900)
    stuck.partial = 5
    time.run(5000)
    assert not memory.reserve(waits, 900)
    time.run(500)
    assert stuck.refused == []
    time.run(500)
    assert (stuck.refused[:1], waits.refused) == (["slow request"], [])


def test_who_fills_the_pool_with_what_waits_for_its_answer_is_cut_the_largest_first() -> None:
    memory, time = small_memory()
    small, large, peer = (FakeReservation(memory) for _ in range(3))
    small.unanswered, large.unanswered, peer.unanswered = 300, 500, 900
    peer.is_peer = True
    memory.requests.take(800)
    time.run(1000)
    memory.requests.take(200)
    time.run(200)
    assert [reservation.refused[:1] for reservation in (small, large, peer)] == [
        ["slow request"],
        ["slow request"],
        [],
    ]


def test_a_place_that_nobody_waits_for_may_be_held_for_long() -> None:
    memory, time = small_memory()
    slow = FakeReservation(memory)
    assert memory.reserve(slow, 900)
    slow.partial = 5
    time.run(60_000)
    assert slow.refused == []


def test_of_slow_readers_only_as_many_are_cut_as_have_to_be() -> None:
    memory, time = small_memory()
    holders = [FakeReservation(memory) for _ in range(4)]
    for reservation, unread in zip(holders, (100_000, 400_000, 200_000, 300_000), strict=True):
        reservation.unread = unread
        memory.answers.take(unread)
    time.run(700)
    assert [reservation.refused for reservation in holders] == [[], *[["slow reader"]] * 3]


def test_a_reader_that_moves_is_not_cut() -> None:
    memory, time = small_memory()
    reader = FakeReservation(memory)
    reader.unread = 10_000_000
    memory.answers.take(1_000_000)
    for _ in range(20):
        time.run(250)
        reader.unread -= 70_000
    assert reader.refused == []


def test_an_answer_reads_a_share_of_what_is_left() -> None:
    memory, _ = small_memory()
    assert memory.share_bytes() == 125_000
    memory.answers.take(800_000)
    assert memory.share_bytes() == 64 * KIB  # and a fetch gets one batch, however large


def test_many_half_sent_requests_hold_nobody_up(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        memory = kafka_client.context.memory
        slow = [await Client.connect(kafka_client) for _ in range(40)]
        for client in slow:
            client.send(INT32.pack(200 * KIB) + bytes(100 * KIB))
        await eventually(lambda: memory.requests.is_full)
        other = await Client.connect(kafka_client)
        assert len(await other.ask(API_VERSIONS_REQUEST)) > 10
        assert memory.requests.used_bytes < 2 * memory.limits.requests

    with_kafka_client(tmp_path, scenario, SMALL)


def test_many_half_sent_large_requests_hold_nobody_up(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        slow = [await Client.connect(kafka_client) for _ in range(20)]
        for client in slow:
            client.send(INT32.pack(500 * KIB) + bytes(1000))
        await eventually(lambda: len(kafka_client.listener.connections) == 20)
        other = await Client.connect(kafka_client)
        assert len(await other.ask(API_VERSIONS_REQUEST)) > 10  # at once: it is small
        batch = a_batch("x" * 400 * KIB)
        assert len(await other.ask(produce(batch))) > 10  # once those that do not move are cut

    with_kafka_client(tmp_path, scenario, SMALL)


@pytest.mark.parametrize("size_kib", [400, 700])
def test_large_requests_of_many_are_all_answered_in_turn(size_kib: int, tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        batch = a_batch("x" * size_kib * KIB)
        clients = [await Client.connect(kafka_client) for _ in range(30)]
        responses = await asyncio.gather(*(client.ask(produce(batch)) for client in clients))
        assert all(len(response) > 10 for response in responses)
        assert kafka_client.context.memory.requests.used_bytes == 0

    with_kafka_client(tmp_path, scenario, SMALL)


def test_slow_readers_are_cut_once_others_want_to_read(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        memory = kafka_client.context.memory
        producer = await Client.connect(kafka_client)
        for _ in range(16):
            await producer.ask(produce(a_batch("x" * 900 * KIB)))
        slow = [await Client.connect(kafka_client) for _ in range(10)]
        for client in slow:
            cast(asyncio.ReadTransport, client.writer.transport).pause_reading()
            client.send(fetch() * 8)
        await eventually(lambda: memory.answers.is_full)
        reader = await Client.connect(kafka_client)
        assert len(await reader.ask(fetch())) > 900 * KIB
        # One batch each at most above the limit, of those that asked before it was full.
        assert memory.answers.used_bytes < 2 * memory.limits.answers
        for client in slow:
            client.writer.transport.abort()
        await eventually(lambda: memory.answers.used_bytes == 0)

    with_kafka_client(tmp_path, scenario, SMALL)


def test_a_parked_fetch_of_very_many_partitions_ends_when_memory_is_wanted(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        client.send(fetch(max_wait_ms=60_000, times=5000))
        async with asyncio.timeout(30):
            assert len(await client.answer()) > 10

    with_kafka_client(tmp_path, scenario, SMALL)


def test_a_fetch_that_was_still_decoded_when_memory_was_wanted_ends_too(tmp_path: Path) -> None:
    """From v15 on a request is decoded in turns, and waits after the last of them."""
    wanted = FetchPartition(0, -1, 0, -1, -1, 1024)
    request = FetchRequest(60_000, 1, 1024, (FetchTopic(TOPIC_ID, (wanted,) * 3000),))
    frame = encode_fetch_request(request, correlation_id=7, client_id="test", version=17)

    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        client.send(frame)
        async with asyncio.timeout(HANG_SECONDS):
            assert len(await client.answer()) > 10

    with_kafka_client(tmp_path, scenario, SMALL)


def test_a_fetch_is_not_cut_because_the_broker_itself_was_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        stalls = [PATIENCE_MS / 1000 + 0.1]
        read = kafka_client.partitions.fetch

        def fetch_slowly(*where: Any, **limits: Any) -> Any:
            if stalls:
                time.sleep(stalls.pop())
            return read(*where, **limits)

        monkeypatch.setattr(kafka_client.partitions, "fetch", fetch_slowly)
        client = await Client.connect(kafka_client)
        client.send(fetch(max_wait_ms=60_000, times=5000))
        assert len(await client.answer()) > 10

    with_kafka_client(tmp_path, scenario, SMALL)


def create_topics(*, tag_bytes: int = 0, values: int = 0) -> bytes:
    """One topic with so many long config values; the request ends with a tag that nobody knows."""
    configs = tuple({"name": f"name.{n}", "value": "x" * 30_000} for n in range(values))
    topic = {"topic": "t", "partition_count": 1, "replication_factor": 1, "assignments": ()}
    requested = {"topics": ({**topic, "configs": configs},), "timeout_ms": 60_000}
    frame = CREATE_TOPICS_API.encode_request(7, 7, "test", requested)
    tag = unsigned_varint(1) + unsigned_varint(99) + unsigned_varint(tag_bytes) + bytes(tag_bytes)
    return framed(frame[4:-1] + (tag if tag_bytes else b"\x00"))


async def never(path: str, request: TopicsRequest, timeout_ms: int) -> TopicsResponse | None:
    await asyncio.Event().wait()
    return None


def test_a_request_that_waits_holds_what_it_asks_for_and_not_its_frame(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.controller.ask = never
        memory = kafka_client.context.memory
        waiting = [await Client.connect(kafka_client) for _ in range(3)]
        for client in waiting:
            client.send(create_topics(tag_bytes=900 * KIB))
        await eventually(lambda: 0 < memory.requests.used_bytes < 20 * KIB)
        other = await Client.connect(kafka_client)
        batch = a_batch("x" * 500 * KIB)
        for _ in range(5):
            assert len(await other.ask(produce(batch))) > 10
        assert len(kafka_client.listener.connections) == 4

    with_kafka_client(tmp_path, scenario, SMALL)


def test_requests_that_wait_do_not_deafen_the_broker_however_much_they_ask_for(
    tmp_path: Path,
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.controller.ask = never
        memory = kafka_client.context.memory
        small = await Client.connect(kafka_client)
        small.send(create_topics(values=1))
        waiting = [await Client.connect(kafka_client) for _ in range(3)]
        for client in waiting:
            client.send(create_topics(values=20))
        async with asyncio.timeout(30):
            await asyncio.wait(
                [asyncio.create_task(client.is_closed()) for client in waiting],
                return_when=asyncio.FIRST_COMPLETED,
            )
        other = await Client.connect(kafka_client)
        assert len(await other.ask(API_VERSIONS_REQUEST)) > 10
        await eventually(lambda: memory.requests.used_bytes < memory.limits.requests)
        assert not small.writer.is_closing()  # the largest are cut

    with_kafka_client(tmp_path, scenario, SMALL)


class StuckTransport(asyncio.Transport):
    """What it has been given is never read."""

    is_closed = is_aborted = False

    def is_reading(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True


def test_a_refused_connection_gives_all_back_and_ends_however_little_its_client_reads(
    tmp_path: Path,
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.controller.ask = never
        transport = StuckTransport()
        connection = KafkaConnection(kafka_client.listener)
        connection.connection_made(transport)
        connection.data_received(create_topics(values=1))
        connection.data_received(produce(a_batch("x" * 5000))[:-4000])
        memory = kafka_client.context.memory
        assert memory.requests.used_bytes > 30 * KIB
        connection.data_received(bytes(4000) + INT32.pack(-1))
        await eventually(lambda: transport.is_aborted)
        assert transport.is_closed
        connection.connection_lost(None)
        assert memory.requests.used_bytes == 0

    with_kafka_client(tmp_path, scenario, ListenerLimits(closing_seconds=0.05))


def test_a_fetch_that_waits_for_much_reads_each_record_a_few_times_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_bytes = 0
    read = PartitionLog.read

    def counted(log: PartitionLog, *place: Any, **how: Any) -> bytes:
        nonlocal read_bytes
        data = read(log, *place, **how)
        read_bytes += len(data)
        return data

    async def scenario(kafka_client: KafkaTestClient) -> None:
        reader, producer = await Client.connect(kafka_client), await Client.connect(kafka_client)
        await producer.ask(produce(a_batch("x" * 10 * KIB)))
        reader.send(fetch(max_wait_ms=60_000, min_bytes=195 * KIB))
        for _ in range(20):
            await producer.ask(produce(a_batch("x" * 10 * KIB)))
        assert 195 * KIB <= len(await reader.answer()) < 220 * KIB

    monkeypatch.setattr(PartitionLog, "read", counted)
    with_kafka_client(tmp_path, scenario)
    assert read_bytes < 5 * 200 * KIB


def test_a_fetch_that_waits_is_answered_though_its_limit_cuts_what_it_may_have(
    tmp_path: Path,
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        reader, producer = await Client.connect(kafka_client), await Client.connect(kafka_client)
        reader.send(fetch(max_wait_ms=500, min_bytes=9 * KIB, max_bytes=10 * KIB))
        for _ in range(4):
            await producer.ask(produce(a_batch("x" * 4 * KIB)))
        assert 8 * KIB <= len(await reader.answer()) <= 10 * KIB

    with_kafka_client(tmp_path, scenario)


def test_a_request_as_large_as_clients_of_kafka_make_them_is_taken(tmp_path: Path) -> None:
    """franz-go and sarama put up to 100 MiB of batches for one broker into a request."""

    async def scenario(kafka_client: KafkaTestClient) -> None:
        batch = a_batch("x" * 900 * KIB)
        client = await Client.connect(kafka_client)
        response = await client.ask(produce(batch, times=30))
        replica = kafka_client.partitions.find_leading(TOPIC, 0)
        assert not isinstance(replica, ErrorCode)
        assert replica.log.log_end_offset == 30
        assert len(response) > 30 * 14
        assert kafka_client.context.memory.requests.used_bytes == 0

    with_kafka_client(tmp_path, scenario)
