"""Test the counts by which a person knows that no plain or nameless client is left."""

import asyncio
import ssl
from pathlib import Path

from tidemark_broker.kafka.network.socket_server import SocketServer
from tidemark_broker.security.client_connections import (
    ClientConnections,
    ConnectionKind,
    CountedConnection,
)
from tidemark_broker.security.tls import TlsMode

from tests.support.certificates import TestPool
from tests.support.kafka_test_client import KafkaTestClient, with_kafka_client
from tests.support.waiting import eventually
from tests.unit.broker.security.test_optional_tls import API_VERSIONS, connect, fetch_as

PLAIN = ConnectionKind("kafka", has_tls=False, is_authenticated=False)
TLS = ConnectionKind("kafka", has_tls=True, is_authenticated=False)


def test_connection_counts_once_and_again_when_it_has_authenticated() -> None:
    connections = ClientConnections()
    counted = CountedConnection("web", has_tls=True)
    for is_authenticated in (False, False, True, True):
        counted.used(connections, is_authenticated=is_authenticated)
    nameless = ConnectionKind("web", has_tls=True, is_authenticated=False)
    named = ConnectionKind("web", has_tls=True, is_authenticated=True)
    assert connections.total == {nameless: 1, named: 1}
    assert connections.open == {nameless: 0, named: 1}
    counted.end()
    counted.end()
    assert connections.open[named] == 0


def test_metrics_name_listener_encryption_and_authentication() -> None:
    connections = ClientConnections()
    CountedConnection("kafka", has_tls=False).used(connections, is_authenticated=False)
    CountedConnection("web", has_tls=True).used(connections, is_authenticated=True)
    text = "".join(connections.render())
    plain = 'listener="kafka",encryption="none",authentication="none"'
    closed = 'listener="web",encryption="tls",authentication="kubernetes"'
    for family in ("tidemark_client_connections", "tidemark_client_connections_total"):
        assert f"{family}{{{plain}}} 1\n" in text
        assert f"{family}{{{closed}}} 1\n" in text


def test_kafka_port_counts_clients_by_encryption(tmp_path: Path) -> None:
    pool = TestPool()
    context = ssl.create_default_context(cadata=pool.authority.certificate_pem)

    async def main(kafka_client: KafkaTestClient) -> None:
        server = SocketServer(kafka_client.context, pool.broker(1))
        port = await server.start("127.0.0.1", 0, mode=TlsMode.OPTIONAL)
        counts = server.client_connections
        probe = await connect(port)
        probe[1].write(API_VERSIONS)
        await probe[0].readexactly(4)
        assert counts.total == {}
        for used, kind in ((None, PLAIN), (context, TLS)):
            reader, writer = await connect(port, used)
            writer.write(fetch_as(-1))
            await asyncio.wait_for(reader.readexactly(4), 10)
            assert (counts.open[kind], counts.total[kind]) == (1, 1)
            writer.transport.abort()
            await eventually(lambda kind=kind: counts.open[kind] == 0)
        assert counts.total == {PLAIN: 1, TLS: 1}
        await server.stop()

    with_kafka_client(tmp_path, main)
