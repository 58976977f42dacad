"""Who gets in, and as whom, over real sockets."""

import asyncio
import contextlib
import ssl
import time
from pathlib import Path

import pytest
from tidemark_broker.http.server import ConnectionRules, HttpTls, serve
from tidemark_broker.kafka.network.client_session import ListenerRules
from tidemark_broker.kafka.network.replica_rights import ReplicaRights
from tidemark_broker.kafka.network.socket_server import SocketServer
from tidemark_broker.kafka_wire.messages.fetch import (
    FetchRequest,
    decode_fetch_response,
    encode_fetch_request,
)
from tidemark_broker.security.certificate_renewal import CertificateRenewal
from tidemark_broker.security.private_key import PrivateKey
from tidemark_broker.security.tls import BrokerTls, TlsMode, TrustedFile
from tidemark_broker.server.config import TlsSettings
from tidemark_chaos.environments.processes import PortRange
from tidemark_operator.security.certificate_authority import CertificateSubject
from tidemark_protocol.access_messages import SignCertificateResponse
from tidemark_protocol.certificate_names import (
    broker_certificate_name,
    broker_of_certificate_name,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId

from tests.support.certificates import POOL, TestPool, new_authority
from tests.support.kafka_test_client import KafkaTestClient, with_kafka_client
from tests.support.waiting import eventually
from tests.unit.broker.http.fake_broker import fake_broker

LEADER = BrokerId(1)
SUBJECT = CertificateSubject(("a",))
FOR_CLIENTS = ListenerRules(replicas=ReplicaRights.NONE)


def fetch_as(replica_id: int) -> bytes:
    return encode_fetch_request(
        FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1000,
            topics=(),
            replica_id=replica_id,
            replica_epoch=BrokerEpoch(12),
        ),
        correlation_id=1,
        client_id="",
    )


class Server:
    """A broker 1 with a listener for clients and one for brokers."""

    def __init__(self, kafka_client: KafkaTestClient, tls: BrokerTls) -> None:
        self.tls = tls
        self.listener = SocketServer(kafka_client.context, tls)
        self.client_port = self.plain_port = self.peer_port = 0

    async def start(self) -> None:
        self.client_port = await self.listener.start(
            "127.0.0.1", 0, rules=FOR_CLIENTS, mode=TlsMode.REQUIRED
        )
        self.plain_port = await self.listener.start(
            "127.0.0.1", 0, listener="old", rules=FOR_CLIENTS
        )
        self.peer_port = await self.listener.start_replication("127.0.0.1", 0)


async def error_of_fetch(
    port: int, context: ssl.SSLContext | None, replica_id: int, *, name: str = ""
) -> ErrorCode:
    """Raises OSError, or IncompleteReadError (EOFError), where the connection is refused."""
    name = (name or broker_certificate_name(POOL, LEADER)) if context is not None else ""
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=name or None
        )
        try:
            writer.write(fetch_as(replica_id))
            size = int.from_bytes(await reader.readexactly(4), "big")
            return decode_fetch_response(await reader.readexactly(size)).error
        finally:
            writer.transport.abort()


def test_follower_fetches_only_as_its_certificate_names_it(tmp_path: Path) -> None:
    pool = TestPool()

    async def scenario(kafka_client: KafkaTestClient) -> None:
        server = Server(kafka_client, pool.broker(1))
        await server.start()
        second = pool.broker(2).peers_out
        assert await error_of_fetch(server.peer_port, second, 2) is ErrorCode.NONE
        rejected = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert await error_of_fetch(server.peer_port, second, 3) is rejected
        assert await error_of_fetch(server.client_port, second, 2) is rejected
        assert await error_of_fetch(server.plain_port, None, 2) is rejected
        await server.listener.stop()

    with_kafka_client(tmp_path, scenario)


def test_clients_get_no_tickets_whose_making_costs_more_than_they_save() -> None:
    pool = TestPool()
    server_in, server_out = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = pool.broker(1).clients.wrap_bio(server_in, server_out, server_side=True)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.load_verify_locations(cadata=pool.authority.certificate_pem)
    client_in, client_out = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(client_in, client_out, server_hostname="localhost")
    for _ in range(3):
        for end in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
            client_in.write(server_out.read())
            server_in.write(client_out.read())
    with pytest.raises(ssl.SSLWantReadError):  # all that the server sent is read
        client.read(1)
    assert client.version() == "TLSv1.3"
    assert client.session is not None and not client.session.has_ticket


def test_strangers_do_not_reach_the_replication_listener(tmp_path: Path) -> None:
    pool = TestPool()
    other = TestPool(pool="shop/other")
    no_broker = pool.broker(2, named="orders.shop.svc")
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.load_verify_locations(cadata=pool.authority.certificate_pem)

    async def scenario(kafka_client: KafkaTestClient) -> None:
        server = Server(kafka_client, pool.broker(1))
        await server.start()
        foreign = other.broker(2, trusts=(pool.authority,))
        # Of the same authority, but of another pool: the authority would have to be shared.
        namesake = TestPool("shop/other", pool.authority).broker(2)
        expired = pool.broker(2, life_s=-1)
        contexts = [trusting, foreign.peers_out, namesake.peers_out, expired.peers_out]
        for context in (*contexts, no_broker.peers_out):
            with pytest.raises((OSError, EOFError)):
                await error_of_fetch(server.peer_port, context, 2)
        with pytest.raises((OSError, EOFError)):
            await error_of_fetch(server.peer_port, None, 2)
        await server.listener.stop()

    with_kafka_client(tmp_path, scenario)


def test_leader_that_its_certificate_names_otherwise_is_not_followed(tmp_path: Path) -> None:
    pool = TestPool()

    async def scenario(kafka_client: KafkaTestClient) -> None:
        server = Server(kafka_client, pool.broker(1))
        await server.start()
        with pytest.raises(ssl.SSLCertVerificationError):
            name = broker_certificate_name(POOL, BrokerId(3))
            await error_of_fetch(server.peer_port, pool.broker(2).peers_out, 2, name=name)
        await server.listener.stop()

    with_kafka_client(tmp_path, scenario)


def test_tls_1_1_is_refused(tmp_path: Path) -> None:
    pool = TestPool()
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_verify_locations(cadata=pool.authority.certificate_pem)
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1

    async def scenario(kafka_client: KafkaTestClient) -> None:
        server = Server(kafka_client, pool.broker(1))
        await server.start()
        with pytest.raises((OSError, EOFError)):
            await error_of_fetch(server.client_port, old, -1)
        await server.listener.stop()

    with_kafka_client(tmp_path, scenario)


def test_renewal_keeps_connections_and_changes_trust(tmp_path: Path) -> None:
    pool = TestPool()
    new = TestPool(authority=new_authority())

    async def scenario(kafka_client: KafkaTestClient) -> None:
        tls = pool.broker(1)
        server = Server(kafka_client, tls)
        await server.start()
        follower = pool.broker(2)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            server.peer_port,
            ssl=follower.peers_out,
            server_hostname=broker_certificate_name(POOL, LEADER),
        )
        new.renew(tls, 1)
        writer.write(fetch_as(2))
        size = int.from_bytes(await reader.readexactly(4), "big")
        assert decode_fetch_response(await reader.readexactly(size)).error is ErrorCode.NONE
        writer.transport.abort()
        with pytest.raises((OSError, EOFError)):
            await error_of_fetch(server.peer_port, follower.peers_out, 2)
        renewed = new.broker(2).peers_out
        assert await error_of_fetch(server.peer_port, renewed, 2) is ErrorCode.NONE
        await server.listener.stop()

    with_kafka_client(tmp_path, scenario)


def test_connection_ends_with_the_certificate_of_the_follower(tmp_path: Path) -> None:
    pool = TestPool()

    async def scenario(kafka_client: KafkaTestClient) -> None:
        server = Server(kafka_client, pool.broker(1))
        await server.start()
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            server.peer_port,
            ssl=pool.broker(2, life_s=2).peers_out,
            server_hostname=broker_certificate_name(POOL, LEADER),
        )
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()
        await server.listener.stop()

    with_kafka_client(tmp_path, scenario)


def test_first_certificate_is_trusted_by_nobody() -> None:
    tls = BrokerTls(POOL, LEADER, PrivateKey(), time.time)
    assert tls.peer_of({"subjectAltName": (("DNS", "broker-1.default.shop.svc"),)}) is None
    assert tls.peer_of(None) is None
    with pytest.raises(ValueError, match="not for this broker's key"):
        other = TestPool().broker(1)
        pool = TestPool()
        issued = pool.authority.issue(
            other.request_pem(), SUBJECT, now_s=int(time.time()), life_s=60
        )
        tls.install(issued.pem, pool.authority.certificate_pem)
    assert tls.ends_s == 0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("broker-1.default.shop.tidemark.internal", ("shop/default", 1)),
        ("broker-0.a.b.shop.tidemark.internal", ("shop/a.b", 0)),
        ("broker-01.default.shop.tidemark.internal", None),
        ("broker-1.default.shop.tidemark.internal.evil.org", None),
        ("x.broker-1.default.shop.tidemark.internal", None),
        ("broker-1.default.tidemark.internal", None),
        ("*.default.shop.tidemark.internal", None),
        ("broker-1.default.shop.tidemark.internal\n", None),
        ("controller.tidemark.internal", None),
    ],
)
def test_names_of_brokers(name: str, expected: tuple[str, int] | None) -> None:
    found = broker_of_certificate_name(name)
    assert found == expected
    if found is not None:
        assert broker_certificate_name(*found) == name


def test_certificate_is_renewed_in_time_and_after_failures(tmp_path: Path) -> None:
    pool = TestPool()
    ca_file = tmp_path / "ca.crt"
    ca_file.write_text(pool.authority.certificate_pem)
    tls = BrokerTls(POOL, LEADER, PrivateKey(), time.time)
    answers = ["none", "rejected", "broken", "good", "good"]

    async def sign(request_pem: str, _: str) -> SignCertificateResponse | None:
        answer = answers.pop(0)
        if answer == "none":
            return None
        if answer == "rejected":
            return SignCertificateResponse(ErrorCode.UNKNOWN_SERVER_ERROR, "no store")
        if answer == "broken":
            return SignCertificateResponse(ErrorCode.NONE, certificate_pem="x")
        issued = pool.authority.issue(request_pem, SUBJECT, now_s=int(time.time()), life_s=3)
        return SignCertificateResponse(
            ErrorCode.NONE,
            certificate_pem=issued.pem,
            authorities_pem=pool.authority.certificate_pem,
        )

    async def main() -> None:
        renewal = CertificateRenewal(tls, TrustedFile(ca_file), sign=sign, wall_clock_s=time.time)
        async with asyncio.timeout(20):
            await renewal.first()
            assert answers == ["good"]
            renewed = asyncio.Event()

            async def on_renewed() -> None:
                renewed.set()

            running = asyncio.create_task(renewal.run(on_renewed))
            await renewed.wait()
            running.cancel()

    asyncio.run(main())


def test_file_of_authorities_is_read_again(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.crt"
    ca_file.write_text(new_authority().certificate_pem)
    trusted = TrustedFile(ca_file)
    before = trusted.context
    trusted.check()
    assert trusted.context is before
    ca_file.write_text("nonsense")
    trusted.check()
    assert trusted.context is before
    ca_file.write_text(new_authority().certificate_pem)
    trusted.check()
    assert trusted.context is not before


def test_http_port_has_tls_and_named_listeners_may_be_plain() -> None:
    pool = TestPool()
    context = ssl.create_default_context(cadata=pool.authority.certificate_pem)
    of_broker = pool.broker(1).clients
    settings = TlsSettings(mode=TlsMode.REQUIRED, plain_listeners=frozenset({"old"}))
    request = b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"

    async def answer(port: int, context: ssl.SSLContext | None) -> bytes:
        async with asyncio.timeout(10):
            name = None if context is None else "localhost"
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, server_hostname=name
            )
            writer.write(request)
            try:
                return await reader.readline()
            finally:
                writer.transport.abort()

    async def main() -> None:
        stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
        with PortRange(3) as ports:
            serving = asyncio.create_task(
                serve(
                    fake_broker().app,
                    host="127.0.0.1",
                    port=ports.first,
                    listeners={ports.first + 1: "safe", ports.first + 2: "old"},
                    stop=stop,
                    on_listening=listening.set_result,
                    rules=ConnectionRules(tls=HttpTls(lambda: of_broker, settings.of)),
                )
            )
            await listening
            for port, used in ((0, context), (1, context), (2, None)):
                assert b" 200 " in await answer(ports.first + port, used)
            for port in (0, 1):
                with contextlib.suppress(OSError):
                    assert b" 200 " not in await answer(ports.first + port, None)
            with pytest.raises(ssl.SSLError):
                await answer(ports.first + 2, context)
            stop.set()
            await serving

    asyncio.run(main())


def test_renewal_goes_on_when_the_listener_cannot_be_renewed(tmp_path: Path) -> None:
    pool = TestPool()
    ca_file = tmp_path / "ca.crt"
    ca_file.write_text(pool.authority.certificate_pem)
    tls = pool.broker(1, life_s=1)
    calls = 0

    async def sign(request_pem: str, _: str) -> SignCertificateResponse | None:
        issued = pool.authority.issue(request_pem, SUBJECT, now_s=int(time.time()), life_s=2)
        return SignCertificateResponse(
            ErrorCode.NONE,
            certificate_pem=issued.pem,
            authorities_pem=pool.authority.certificate_pem,
        )

    async def on_renewed() -> None:
        nonlocal calls
        calls += 1
        raise OSError("too many open files")

    async def main() -> None:
        renewal = CertificateRenewal(tls, TrustedFile(ca_file), sign=sign, wall_clock_s=time.time)
        running = asyncio.create_task(renewal.run(on_renewed))
        await eventually(lambda: calls > 1)
        running.cancel()

    asyncio.run(main())
