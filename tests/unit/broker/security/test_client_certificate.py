"""Which certificates make a user, and which must not, by rule and over real sockets."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tidemark_broker.http.server import ConnectionRules, HttpTls, serve
from tidemark_broker.kafka.network.client_session import ListenerRules
from tidemark_broker.kafka.network.replica_rights import ReplicaRights
from tidemark_broker.kafka.network.socket_server import SocketServer
from tidemark_broker.kafka_wire.messages.fetch import FetchRequest, encode_fetch_request
from tidemark_broker.security.authenticator import Authenticator
from tidemark_broker.security.client_certificate import CertificateRejected, client_of
from tidemark_broker.security.tls import BrokerTls, TlsMode
from tidemark_chaos.environments.processes import PortRange
from tidemark_operator.security.certificate_authority import Authority
from tidemark_protocol.access_messages import Principal
from tidemark_protocol.ids import BrokerEpoch, BrokerId
from tidemark_protocol.topic_messages import RequestingBroker

from tests.support.certificates import POOL, TestPool, client_context, new_authority
from tests.support.kafka_test_client import KafkaTestClient, with_kafka_client
from tests.unit.broker.http.fake_broker import fake_broker

CLOSED = ListenerRules(requires_authentication=True, replicas=ReplicaRights.NONE)
ISSUER = ((("commonName", "clients"),),)
NOW_S = 1_800_000_000.0


def certificate(
    *names: tuple[str, str], issuer: Any = ISSUER, alternative: tuple[str, ...] = ()
) -> dict[str, Any]:
    return {
        "subject": tuple((name,) for name in names),
        "issuer": issuer,
        "notAfter": "Jan  1 00:00:00 2040 GMT",
        "subjectAltName": tuple(("DNS", each) for each in alternative),
    }


def identity(found: dict[str, Any], pool_issuers: frozenset[Any] = frozenset()) -> Principal:
    return client_of(found, pool_issuers=pool_issuers, now_s=NOW_S).principal


def test_common_name_is_the_user_and_organisations_are_groups() -> None:
    found = certificate(
        ("organizationName", "web"), ("organizationName", "orders"), ("commonName", "importer")
    )
    assert identity(found) == Principal("importer", ("web", "orders", "system:authenticated"))


@pytest.mark.parametrize(
    "names",
    [
        (),
        (("commonName", ""),),
        (("commonName", "a"), ("commonName", "b")),
        (("commonName", "system:admin"),),
        (("commonName", "System:admin"),),
        (("commonName", "system:serviceaccount:shop:orders"),),
        (("commonName", "tidemark:user:admin"),),
        (("commonName", "broker-1.default.shop.tidemark.internal"),),
        (("commonName", "controller.tidemark.internal"),),
        (("commonName", "a"), ("organizationName", "system:masters")),
        (("commonName", "a\n"),),
        (("commonName", "a" * 257),),
        (("commonName", "a"), *(("organizationName", f"{number}") for number in range(101))),
    ],
)
def test_reserved_and_odd_names_make_no_user(names: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(CertificateRejected):
        identity(certificate(*names))


def test_certificates_of_brokers_make_no_user() -> None:
    of_broker = certificate(
        ("commonName", "a"), alternative=("broker-1.default.shop.tidemark.internal",)
    )
    with pytest.raises(CertificateRejected, match="names broker-1"):
        identity(of_broker)
    with pytest.raises(CertificateRejected, match="authority of this pool"):
        identity(certificate(("commonName", "a")), frozenset({ISSUER}))


def test_an_expired_certificate_makes_no_user() -> None:
    with pytest.raises(CertificateRejected, match="expired"):
        client_of(certificate(("commonName", "a")), pool_issuers=frozenset(), now_s=3_000_000_000.0)


# ---- over sockets


class ClosedBroker:
    """A broker 1 whose listener asks who clients are."""

    def __init__(self, kafka_client: KafkaTestClient, tls: BrokerTls) -> None:
        self.kafka_client, self.tls = kafka_client, tls
        self.listener = SocketServer(kafka_client.context, tls)
        self.port = self.peer_port = 0

    async def start(self) -> None:
        self.port = await self.listener.start("127.0.0.1", 0, rules=CLOSED, mode=TlsMode.REQUIRED)
        self.peer_port = await self.listener.start_replication("127.0.0.1", 0)


class Client:
    """A connection that sends empty fetches, with the client certificate of its TLS context."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int, context: ssl.SSLContext) -> "Client":
        return cls(
            *await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, server_hostname="localhost"
            )
        )

    async def is_served(self) -> bool:
        """Whether a fetch, which needs a known client, is answered."""
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=())
        async with asyncio.timeout(10):
            try:
                self.writer.write(encode_fetch_request(request, correlation_id=1, client_id=""))
                size = int.from_bytes(await self.reader.readexactly(4), "big")
                await self.reader.readexactly(size)
            except (OSError, EOFError):
                return False
        return True


async def is_served(port: int, context: ssl.SSLContext) -> bool:
    try:
        client = await Client.connect(port, context)
    except OSError:
        return False
    try:
        return await client.is_served()
    finally:
        client.writer.transport.abort()


def write(file: Path, text: str) -> None:
    file.write_text(text)


Scenario = Callable[[ClosedBroker, TestPool, Authority, Path], Awaitable[None]]


def with_closed_broker(path: Path, scenario: Scenario) -> None:
    pool, clients = TestPool(), new_authority("clients")
    file = path / "client-ca.crt"
    write(file, clients.certificate_pem)

    async def run(kafka_client: KafkaTestClient) -> None:
        broker = ClosedBroker(kafka_client, pool.broker(1, clients=file))
        await broker.start()
        await scenario(broker, pool, clients, file)
        await broker.listener.stop()

    with_kafka_client(path, run)


def test_a_client_needs_a_certificate_of_the_authority_of_clients(tmp_path: Path) -> None:
    async def scenario(broker: ClosedBroker, pool: TestPool, clients: Authority, _: Path) -> None:
        trusts = pool.authority
        assert await is_served(broker.port, client_context(clients, "orders", trusts=trusts))
        anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anyone.load_verify_locations(cadata=trusts.certificate_pem)
        assert not await is_served(broker.port, anyone)  # it may authenticate by SASL
        for context in (
            client_context(clients, "orders", trusts=trusts, life_s=-1),
            client_context(clients, "system:admin", trusts=trusts),
            client_context(clients, "orders", ("system:masters",), trusts=trusts),
            client_context(new_authority("clients"), "orders", trusts=trusts),
            client_context(trusts, "orders", trusts=trusts),
            pool.broker(2).peers_out,
        ):
            assert not await is_served(broker.port, context)

    with_closed_broker(tmp_path, scenario)


def test_an_authority_of_clients_makes_no_broker(tmp_path: Path) -> None:
    async def scenario(broker: ClosedBroker, pool: TestPool, clients: Authority, _: Path) -> None:
        posing = TestPool(pool.pool, clients).broker(2, trusts=(pool.authority,))
        assert not await is_served(broker.peer_port, posing.peers_out)
        assert not await is_served(broker.port, posing.peers_out)

    with_closed_broker(tmp_path, scenario)


def test_a_pool_that_trusts_its_own_authority_in_clients_has_no_such_users(tmp_path: Path) -> None:
    async def scenario(
        broker: ClosedBroker, pool: TestPool, clients: Authority, file: Path
    ) -> None:
        write(file, clients.certificate_pem + pool.authority.certificate_pem)
        tls = pool.broker(1, clients=file)
        other = ClosedBroker(broker.kafka_client, tls)
        await other.start()
        trusts = pool.authority
        assert not await is_served(other.port, client_context(trusts, "orders", trusts=trusts))
        assert not await is_served(other.port, pool.broker(2).peers_out)
        assert await is_served(other.port, client_context(clients, "orders", trusts=trusts))
        await other.listener.stop()

    with_closed_broker(tmp_path, scenario)


def test_a_connection_ends_with_its_clients_certificate(tmp_path: Path) -> None:
    async def scenario(broker: ClosedBroker, pool: TestPool, clients: Authority, _: Path) -> None:
        context = client_context(clients, "orders", trusts=pool.authority, life_s=2)
        client = await Client.connect(broker.port, context)
        assert await client.is_served()
        async with asyncio.timeout(10):
            assert await client.reader.read() == b""

    with_closed_broker(tmp_path, scenario)


def test_authorities_of_clients_change_without_a_restart(tmp_path: Path) -> None:
    async def scenario(
        broker: ClosedBroker, pool: TestPool, clients: Authority, file: Path
    ) -> None:
        tls = broker.tls
        other = new_authority("other clients")
        old = client_context(clients, "orders", trusts=pool.authority)
        new = client_context(other, "orders", trusts=pool.authority)
        client = await Client.connect(broker.port, old)
        assert await client.is_served()
        assert not await is_served(broker.port, new)

        write(file, "nonsense")
        tls.check_client_authorities()
        assert await client.is_served()

        write(file, other.certificate_pem)
        tls.check_client_authorities()
        async with asyncio.timeout(10):
            assert await client.reader.read() == b""
        assert not await is_served(broker.port, old)
        client = await Client.connect(broker.port, new)
        assert await client.is_served()

        write(file, "")
        tls.check_client_authorities()
        async with asyncio.timeout(10):
            assert await client.reader.read() == b""
        assert not await is_served(broker.port, new)

    with_closed_broker(tmp_path, scenario)


# ---- HTTP


def asks_no_one() -> Authenticator:
    async def ask(*_: Any, **__: Any) -> None:
        return None

    return Authenticator(
        ask,
        requesting=lambda: RequestingBroker(POOL, BrokerId(1), BrokerEpoch(1)),
        wall_clock_s=time.time,
        random_prefix=b"",
    )


async def http_status(port: int, context: ssl.SSLContext, path: str = "/topics") -> bytes:
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="localhost"
        )
        writer.write(b"GET %b HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n" % path.encode())
        try:
            return (await reader.readline()).split(b" ")[1]
        finally:
            writer.transport.abort()


def test_http_clients_are_known_by_their_certificates(tmp_path: Path) -> None:
    pool, clients = TestPool(), new_authority("clients")
    file = tmp_path / "client-ca.crt"
    write(file, clients.certificate_pem)
    orders = client_context(clients, "orders", trusts=pool.authority)
    reserved = client_context(clients, "system:admin", trusts=pool.authority)
    anyone = ssl.create_default_context(cadata=pool.authority.certificate_pem)

    async def main() -> None:
        tls = pool.broker(1, clients=file)
        stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
        with PortRange(1) as ports:
            serving = asyncio.create_task(
                serve(
                    fake_broker(authenticator=asks_no_one(), client_of=tls.client_of).app,
                    host="127.0.0.1",
                    port=ports.first,
                    stop=stop,
                    on_listening=listening.set_result,
                    rules=ConnectionRules(
                        lambda listener: True,
                        tls=HttpTls(lambda: tls.clients, next_context=tls.next_clients),
                    ),
                )
            )
            await listening
            port, path = ports.first, "/topics/orders/partitions/9/records"
            assert await http_status(port, orders, path) == b"404"
            assert await http_status(port, reserved, path) == b"401"
            assert await http_status(port, anyone, path) == b"401"
            write(file, "")
            tls.check_client_authorities()
            async with asyncio.timeout(10):
                while await http_status(port, orders, path) != b"401":
                    pass
            stop.set()
            await serving

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as the broker's
        runner.run(main())
