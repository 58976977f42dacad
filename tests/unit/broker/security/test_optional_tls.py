"""Test ports that accept plain connections and TLS, over real sockets."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop
from tidemark_broker.http.server import ConnectionRules, HttpTls, serve
from tidemark_broker.kafka.network.client_session import ListenerRules
from tidemark_broker.kafka.network.limits import ListenerLimits
from tidemark_broker.kafka.network.socket_server import SocketServer
from tidemark_broker.kafka_wire.messages.fetch import (
    FetchRequest,
    decode_fetch_response,
    encode_fetch_request,
)
from tidemark_broker.security.client_connections import ClientConnections, ConnectionKind
from tidemark_broker.security.tls import TlsMode
from tidemark_chaos.environments.processes import PortRange
from tidemark_protocol.certificate_names import broker_certificate_name
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId

from tests.support.certificates import POOL, TestPool
from tests.support.kafka_test_client import KafkaTestClient, with_kafka_client
from tests.unit.broker.http.fake_broker import fake_broker

# ApiVersions 0 with correlation id 7 and no client id.
API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000007 ffff".replace(" ", ""))
GET_BROKERS = b"GET /brokers HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
GET = b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"


def context_of(pool: TestPool, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=pool.authority.certificate_pem)
    context.minimum_version = context.maximum_version = version
    return context


Connected = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(port: int, context: ssl.SSLContext | None = None) -> Connected:
    name = None if context is None else "localhost"
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)


async def correlation_id(connected: Connected) -> int:
    """Return the correlation id of the response; raises EOFError where there is none."""
    reader, writer = connected
    try:
        size = int.from_bytes(await reader.readexactly(4), "big")
        return int.from_bytes((await reader.readexactly(size))[:4], "big")
    finally:
        writer.transport.abort()


def with_optional_port(
    path: Path,
    pool: TestPool,
    scenario: Callable[[SocketServer, int], Awaitable[None]],
    limits: ListenerLimits | None = None,
) -> None:
    async def main(kafka_client: KafkaTestClient) -> None:
        server = SocketServer(kafka_client.context, pool.broker(1))
        port = await server.start("127.0.0.1", 0, mode=TlsMode.OPTIONAL)
        await scenario(server, port)
        await server.stop()

    with_kafka_client(path, main, limits)


@pytest.mark.parametrize("version", [None, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("pieces", [(14,), (1, 13), (1, 3, 10), (9, 5)])
def test_kafka_port_serves_plain_and_tls(
    tmp_path: Path, version: ssl.TLSVersion | None, pieces: tuple[int, ...]
) -> None:
    pool = TestPool()

    async def scenario(server: SocketServer, port: int) -> None:
        connected = await connect(port, None if version is None else context_of(pool, version))
        begin = 0
        for size in pieces:
            connected[1].write(API_VERSIONS[begin : begin + size])
            await connected[1].drain()
            await asyncio.sleep(0.01)
            begin += size
        assert await correlation_id(connected) == 7

    with_optional_port(tmp_path, pool, scenario)


def test_slow_first_byte_does_not_keep_others_waiting(tmp_path: Path) -> None:
    pool = TestPool()

    async def scenario(server: SocketServer, port: int) -> None:
        slow = await connect(port)
        for context in (None, context_of(pool)):
            other = await connect(port, context)
            other[1].write(API_VERSIONS)
            assert await correlation_id(other) == 7
        slow[1].write(API_VERSIONS)
        assert await correlation_id(slow) == 7

    with_optional_port(tmp_path, pool, scenario)


def test_connection_without_a_byte_is_closed_after_a_time(tmp_path: Path) -> None:
    async def scenario(server: SocketServer, port: int) -> None:
        reader, _ = await connect(port)
        assert await reader.read() == b""

    limits = ListenerLimits(authentication_seconds=0.2)
    with_optional_port(tmp_path, TestPool(), scenario, limits)


def test_oldest_connection_without_a_byte_makes_room(tmp_path: Path) -> None:
    async def scenario(server: SocketServer, port: int) -> None:
        first, second, third = [await connect(port) for _ in range(3)]
        assert await first[0].read() == b""
        for connected in (second, third):
            connected[1].write(API_VERSIONS)
            assert await correlation_id(connected) == 7

    with_optional_port(
        tmp_path, TestPool(), scenario, ListenerLimits(unauthenticated_connections=2)
    )


def test_clients_that_leave_without_a_byte_make_room_too(tmp_path: Path) -> None:
    async def scenario(server: SocketServer, port: int) -> None:
        stays = await connect(port)
        for _ in range(20):
            _, writer = await connect(port)
            writer.close()
            await writer.wait_closed()
        stays[1].write(API_VERSIONS)
        assert await correlation_id(stays) == 7

    with_optional_port(
        tmp_path, TestPool(), scenario, ListenerLimits(unauthenticated_connections=5)
    )


def test_bytes_that_only_begin_like_tls_end_the_connection(tmp_path: Path) -> None:
    async def scenario(server: SocketServer, port: int) -> None:
        connected = await connect(port)
        connected[1].write(b"\x16" + API_VERSIONS)
        with pytest.raises((EOFError, OSError)):
            await asyncio.wait_for(correlation_id(connected), 5)

    with_optional_port(tmp_path, TestPool(), scenario)


def test_stop_closes_connections_that_are_undecided(tmp_path: Path) -> None:
    pool = TestPool()

    async def main(kafka_client: KafkaTestClient) -> None:
        server = SocketServer(kafka_client.context, pool.broker(1))
        port = await server.start("127.0.0.1", 0, mode=TlsMode.OPTIONAL)
        reader, _ = await connect(port)
        await asyncio.wait_for(server.stop(), 5)
        assert await reader.read() == b""
        with pytest.raises(OSError):
            await connect(port)

    with_kafka_client(tmp_path, main)


def fetch_as(replica_id: int) -> bytes:
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1000,
        topics=(),
        replica_id=replica_id,
        replica_epoch=BrokerEpoch(12),
    )
    return encode_fetch_request(request, correlation_id=1, client_id="")


async def error_of_fetch(port: int, context: ssl.SSLContext | None, replica_id: int) -> ErrorCode:
    name = None if context is None else broker_certificate_name(POOL, BrokerId(1))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=name
    )
    try:
        writer.write(fetch_as(replica_id))
        size = int.from_bytes(await reader.readexactly(4), "big")
        return decode_fetch_response(await reader.readexactly(size)).error
    finally:
        writer.transport.abort()


def test_replication_port_takes_followers_with_and_without_certificate(tmp_path: Path) -> None:
    pool = TestPool()

    async def main(kafka_client: KafkaTestClient) -> None:
        tls = pool.broker(1)
        server = SocketServer(kafka_client.context, tls)
        port = await server.start_replication("127.0.0.1", 0, TlsMode.OPTIONAL)
        second = pool.broker(2).peers_out
        assert await error_of_fetch(port, None, 2) is ErrorCode.NONE
        assert await error_of_fetch(port, second, 2) is ErrorCode.NONE
        rejected = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert await error_of_fetch(port, second, 3) is rejected
        with pytest.raises((OSError, EOFError)):  # a certificate is asked for
            await error_of_fetch(port, TestPool().broker(2, trusts=(pool.authority,)).peers_out, 2)
        pool.renew(tls, 1)
        assert await error_of_fetch(port, second, 2) is ErrorCode.NONE
        await server.stop()

    with_kafka_client(tmp_path, main)


def test_rules_without_followers_hold_for_both_kinds(tmp_path: Path) -> None:
    pool = TestPool()

    async def main(kafka_client: KafkaTestClient) -> None:
        server = SocketServer(kafka_client.context, pool.broker(1))
        rules = ListenerRules(requires_authentication=True)
        port = await server.start("127.0.0.1", 0, rules=rules, mode=TlsMode.OPTIONAL)
        for context in (None, pool.broker(2).peers_out):
            with pytest.raises((OSError, EOFError)):
                await error_of_fetch(port, context, 2)
        await server.stop()

    with_kafka_client(tmp_path, main)


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_http_port_serves_plain_and_tls(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    pool = TestPool()
    context = pool.broker(1).clients
    tls = HttpTls(lambda: context, lambda _: TlsMode.OPTIONAL)

    async def answer(
        port: int, context: ssl.SSLContext | None, size: int, *, request: bytes = GET
    ) -> bytes:
        reader, writer = await connect(port, context)
        writer.write(request[:size])
        await asyncio.sleep(0.01)
        writer.write(request[size:])
        try:
            return await reader.readline()
        finally:
            writer.transport.abort()

    async def main() -> None:
        connections = ClientConnections()
        broker = fake_broker(client_connections=connections)
        stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
        with PortRange(2) as ports:
            serving = asyncio.create_task(
                serve(
                    broker.app,
                    host="127.0.0.1",
                    port=ports.first,
                    listeners={ports.first + 1: "outside"},
                    stop=stop,
                    on_listening=listening.set_result,
                    rules=ConnectionRules(tls=tls),
                )
            )
            await listening
            versions = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
            for port in (ports.first, ports.first + 1):
                for context in (None, *(context_of(pool, version) for version in versions)):
                    for size in (1, 3, len(GET)):
                        assert b" 200 " in await answer(port, context, size)
            assert connections.total == {}  # probes are no clients
            for context in (None, context_of(pool)):
                assert b" 200 " in await answer(ports.first, context, 10, request=GET_BROKERS)
            counted = {
                ConnectionKind("http", has_tls=has_tls, is_authenticated=False): 1
                for has_tls in (False, True)
            }
            assert connections.total == counted
            idle = socket.create_connection(("127.0.0.1", ports.first))
            stop.set()
            await asyncio.wait_for(serving, 10)
            idle.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
