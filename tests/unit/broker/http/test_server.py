"""With real sockets: the server's own limits, and records forwarded between two brokers."""

import asyncio
import contextlib
import errno
import json
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import uvloop
from tidemark_broker.http.limits import ServerLimits
from tidemark_broker.http.record_placement import partition_for_key
from tidemark_broker.http.response import AsgiApp
from tidemark_broker.http.server import serve
from tidemark_broker.replication.results import ProduceResult
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

from tests.support.waiting import HANG_SECONDS, eventually
from tests.unit.broker.http.fake_broker import broker_state, fake_broker

BODY = b'{"records":[{"value":1}]}'


@contextlib.asynccontextmanager
async def serving(app: AsgiApp, limits: ServerLimits | None = None) -> AsyncIterator[int]:
    stop = asyncio.Event()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    given = limits or ServerLimits(graceful_stop_seconds=1)
    async with asyncio.timeout(HANG_SECONDS), asyncio.TaskGroup() as group:
        server = serve(
            app, host="127.0.0.1", port=0, stop=stop, on_listening=port.set_result, limits=given
        )
        group.create_task(server)
        try:
            yield await port
        finally:
            stop.set()


def run(scenario: Callable[[], Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(scenario())


def head(target: str, body: bytes = BODY, content_type: str = "application/json") -> bytes:
    return (
        f"POST {target} HTTP/1.1\r\nhost: x\r\ncontent-type: {content_type}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode()


async def read_response(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    status = int((await reader.readline()).split()[1])
    headers = {}
    while (line := (await reader.readline()).strip()) != b"":
        name, _, value = line.decode().partition(":")
        headers[name] = value.strip()
    return status, headers, await reader.readexactly(int(headers["content-length"]))


async def exchange(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await read_response(reader)
    finally:
        writer.close()


def test_a_real_server_answers_with_lean_headers_and_keeps_the_connection() -> None:
    async def scenario() -> None:
        async with serving(fake_broker().app) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for offset in range(3):
                writer.write(head("/topics/orders/partitions/0") + BODY)
                status, headers, body = await read_response(reader)
                assert (status, set(headers)) == (200, {"content-type", "content-length"})
                assert json.loads(body)["offsets"] == [{"partition": 0, "offset": offset}]
            writer.close()

    run(scenario)


def test_stopping_ends_the_server_and_frees_the_port() -> None:
    async def scenario() -> None:
        async with serving(fake_broker().app) as port:
            assert (await exchange(port, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"))[0] == 200
        with contextlib.suppress(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
            raise AssertionError("still listening")

    run(scenario)


def test_clients_that_go_away_before_their_acknowledgement_disturb_nobody() -> None:
    async def scenario() -> None:
        broker = fake_broker()
        broker.partitions.hold_acks = True
        request = head("/topics/orders/partitions/0") + BODY
        async with serving(broker.app) as port:
            staying, staying_writer = await asyncio.open_connection("127.0.0.1", port)
            leaving = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
            for _, writer in leaving:
                writer.write(request)
            staying_writer.write(request)
            await eventually(lambda: len(broker.partitions.produced) == 6)
            for _, writer in leaving:
                writer.transport.abort()
            await eventually(lambda: broker.app._admission.requests_in_flight == 1)
            for offset, produced in enumerate(broker.partitions.produced):
                produced.done(ProduceResult(ErrorCode.NONE, Offset(offset)))
            assert (await read_response(staying))[0] == 200
            staying_writer.close()
            await eventually(lambda: broker.app._admission.requests_in_flight == 0)

    run(scenario)


def test_a_waiting_produce_whose_client_left_is_let_go_long_before_its_timeout() -> None:
    async def scenario() -> None:
        broker = fake_broker()
        broker.partitions.hold_acks = True
        async with serving(broker.app) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head("/topics/orders/partitions/0?timeout_ms=120000") + BODY)
            await eventually(lambda: len(broker.partitions.produced) == 1)
            writer.transport.abort()
            await eventually(lambda: broker.app._admission.requests_in_flight == 0)

    run(scenario)


def test_a_parked_fetch_is_let_go_when_its_client_leaves() -> None:
    async def scenario() -> None:
        broker = fake_broker()
        async with serving(broker.app) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            target = "/topics/orders/partitions/0/records?offset=0&max_wait_ms=30000"
            writer.write(f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            await eventually(lambda: len(broker.partitions.delayed) == 1)
            writer.transport.abort()
            await eventually(lambda: broker.partitions.cancelled == 1)

    run(scenario)


def test_a_chunked_body_above_the_limit_is_cut_off() -> None:
    async def scenario() -> None:
        async with serving(fake_broker().app) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(
                b"POST /topics/orders HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                b"transfer-encoding: chunked\r\n\r\n"
            )
            chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
            with contextlib.suppress(ConnectionError):
                for _ in range(9):
                    writer.write(chunk)
                    await writer.drain()
            status, headers, body = await read_response(reader)
            assert (status, headers["connection"]) == (413, "close")
            assert json.loads(body)["outcome"] == "not_written"
            writer.close()

    run(scenario)


def test_a_head_without_end_or_too_slow_is_cut() -> None:
    async def scenario() -> None:
        limits = ServerLimits(header_bytes=1000, header_seconds=0.05, graceful_stop_seconds=1)
        async with serving(fake_broker().app, limits) as port:
            for opening in (b"GET / HTTP/1.1\r\nx: " + b"y" * 2000, b"GET / HT", b""):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(opening)
                with contextlib.suppress(ConnectionError):
                    assert await asyncio.wait_for(reader.read(), HANG_SECONDS) == b""
                writer.close()

    run(scenario)


def test_an_idle_connection_after_a_request_is_not_taken_for_a_slow_head() -> None:
    async def scenario() -> None:
        limits = ServerLimits(header_seconds=0.02, graceful_stop_seconds=1)
        async with serving(fake_broker().app, limits) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(2):
                writer.write(head("/topics/orders/partitions/0") + BODY)
                assert (await read_response(reader))[0] == 200
                await asyncio.sleep(5 * limits.header_seconds)
            writer.close()

    run(scenario)


@pytest.mark.parametrize("answers", [1, 3])
def test_a_client_that_does_not_read_its_answer_is_cut(answers: int) -> None:
    async def scenario() -> None:
        broker = fake_broker()
        limits = ServerLimits(stalled_write_seconds=0.1, graceful_stop_seconds=1)
        value = json.dumps({"records": [{"value": "x" * 900_000}] * 4}).encode()
        async with serving(broker.app, limits) as port:
            for _ in range(2):
                request = head("/topics/orders/partitions/0", value) + value
                assert (await exchange(port, request))[0] == 200
            target = "/topics/orders/partitions/0/records?max_bytes=8388608"
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            for _ in range(answers):
                writer.write(f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            await eventually(lambda: broker.app._admission.bytes_in_flight > 0)
            await eventually(lambda: broker.app._admission.bytes_in_flight == 0)
            writer.close()

    run(scenario)


def test_connections_beyond_the_limit_are_cut() -> None:
    async def scenario() -> None:
        limits = ServerLimits(connections=1, graceful_stop_seconds=1)
        async with serving(fake_broker().app, limits) as port:
            _, first = await asyncio.open_connection("127.0.0.1", port)
            second_reader, second = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(second_reader.read(), HANG_SECONDS) == b""
            first.close()
            second.close()

    run(scenario)


# ---- forwarding


def two_leaders(port: int, here: int) -> Any:
    """Brokers 0 and 1 lead partitions 0 and 1; both know broker 1 at `port`."""
    brokers = (broker_state(0), broker_state(1, http_port=port))
    return fake_broker(leaders=(0, 1), broker_id=here, brokers=brokers)


def test_records_of_mixed_leaders_get_one_answer() -> None:
    async def scenario() -> None:
        peer = two_leaders(0, 1)
        async with serving(peer.app) as port:
            broker = two_leaders(port, 0)
            keys = [f"key-{i}" for i in range(10)]
            records = [{"key": key, "value": key, "timestamp": 5} for key in keys]
            response = await broker.client.post("/topics/orders?acks=1", {"records": records})
            assert response.status == 200
            placed = [partition_for_key(json.dumps(key).encode(), 2) for key in keys]
            assert set(placed) == {0, 1}
            offsets = response.json()["offsets"]
            assert [entry["partition"] for entry in offsets] == placed
            for partition, side in ((0, broker), (1, peer)):
                expected = [json.dumps(k).encode() for k, p in zip(keys, placed, strict=True)
                            if p == partition]  # fmt: skip
                log = side.partitions.logs[partition]
                assert [record.value for record in log] == expected
                assert {record.timestamp_ms for record in log} == {5}
                found = [entry["offset"] for entry in offsets if entry["partition"] == partition]
                assert found == list(range(len(expected)))
            assert peer.partitions.produced[0].acks == 1
            await broker.app._forwarder.close()

    run(scenario)


MIXED = {"records": [{"value": 1, "partition": 0}, {"value": 2, "partition": 1}]}


def test_a_peer_that_refuses_is_quoted() -> None:
    async def scenario() -> None:
        peer = two_leaders(0, 1)
        peer.partitions.reject_with = ProduceResult(ErrorCode.NOT_ENOUGH_REPLICAS)
        async with serving(peer.app) as port:
            broker = two_leaders(port, 0)
            response = await broker.client.post("/topics/orders", MIXED)
            first, second = response.json()["offsets"]
            assert first == {"partition": 0, "offset": 0}
            assert (second["error"], second["outcome"]) == ("NOT_ENOUGH_REPLICAS", "not_written")
            await broker.app._forwarder.close()

    run(scenario)


def test_a_peer_that_cannot_be_reached_certainly_wrote_nothing() -> None:
    async def scenario() -> None:
        async with serving(two_leaders(0, 1).app) as port:
            pass
        broker = two_leaders(port, 0)
        response = await broker.client.post("/topics/orders", MIXED)
        first, second = response.json()["offsets"]
        assert first == {"partition": 0, "offset": 0}
        assert (second["error"], second["outcome"]) == ("LEADER_NOT_AVAILABLE", "not_written")
        await broker.app._forwarder.close()

    run(scenario)


def test_a_peer_that_breaks_off_or_babbles_leaves_the_outcome_unknown() -> None:
    async def scenario() -> None:
        responses = [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
                   b"HTTP/1.1 502 Bad\r\ncontent-length: 3\r\n\r\nbad"]  # fmt: skip
        requests = 0

        async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal requests
            await reader.readuntil(b"}]}")
            writer.write(responses[requests])
            requests += 1
            writer.close()

        server = await asyncio.start_server(babble, "127.0.0.1", 0)
        async with server:
            broker = two_leaders(server.sockets[0].getsockname()[1], 0)
            for _ in range(3):
                response = await broker.client.post("/topics/orders", MIXED)
                _, second = response.json()["offsets"]
                assert (second["error"], second["outcome"]) == ("NETWORK_EXCEPTION", "unknown")
            assert requests == 3  # never sent twice
            await broker.app._forwarder.close()

    run(scenario)


def test_a_peer_that_is_silent_is_unknown_by_the_deadline() -> None:
    async def scenario() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        async with server:
            broker = two_leaders(server.sockets[0].getsockname()[1], 0)
            response = await broker.client.post("/topics/orders?timeout_ms=50", MIXED)
            first, second = response.json()["offsets"]
            assert first == {"partition": 0, "offset": 0}
            assert (second["error"], second["outcome"]) == ("REQUEST_TIMED_OUT", "unknown")
            await broker.app._forwarder.close()

    run(scenario)


def test_a_port_that_is_taken_is_named() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}") as refused:
                await serve(fake_broker().app, host="127.0.0.1", port=port, stop=asyncio.Event())
        assert refused.value.errno == errno.EADDRINUSE

    asyncio.run(scenario())
