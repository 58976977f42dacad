"""A client of a broker, the controller's API over HTTP, and the roles file of local mode.

The client's principal is set by the test: SASL and tokens have tests of their own.
"""

import asyncio
import socket
import time
from pathlib import Path

from tidemark_broker.kafka.network.limits import ListenerLimits
from tidemark_broker.kafka_wire.records.record_batch import NewRecord, build_batch
from tidemark_broker.metadata.controller_channel import ControllerChannel, HttpTransport
from tidemark_broker.security.authorizer import Authorizer
from tidemark_operator.controller import http_api
from tidemark_operator.controller.access_reviews import AccessReviews, access_calls
from tidemark_operator.controller.clock import MonotonicClock
from tidemark_operator.security.authentication import authenticated
from tidemark_operator.security.guarded_site import ConnectionGuard
from tidemark_operator.security.local_roles import ROLES_FILE, LocalRoles
from tidemark_operator.security.local_secret import ByLocalSecret, LocalSecret
from tidemark_operator.security.rejections import RejectionLog
from tidemark_operator.security.subject_access_review import SubjectAccessReviews
from tidemark_protocol.access_messages import (
    REVIEW_ACCESS_PATH,
    Access,
    Principal,
    ResourceKind,
    ReviewAccessRequest,
    ReviewAccessResponse,
    Verb,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, ControllerEpoch

from tests.support.controller_harness import POOL, FakeBroker, Harness
from tests.support.kafka_test_client import Client, KafkaTestClient, fetch, produce

ROLES = """
users:
  writer:
    - {resources: [topics], resourceNames: [orders], verbs: [produce, describe]}
groups:
  readers:
    - {resources: [topics], verbs: [consume]}
"""
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED.to_bytes(2, "big")


class Epochs:
    async def store(self, broker_epoch: BrokerEpoch, controller_epoch: ControllerEpoch) -> bool:
        return True


class Cluster:
    """One controller with the roles file of a directory, and the channel of one broker to it."""

    async def start(self, path: Path) -> "Cluster":
        self.harness = await Harness().start(1)
        self.broker: FakeBroker = self.harness.brokers[0]
        reviews = SubjectAccessReviews(LocalRoles(path).review, now_ms=MonotonicClock().now_ms)
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        calls = access_calls(AccessReviews(reviews, self.harness.service))
        secret = LocalSecret(path)
        rejections = RejectionLog(time.monotonic)
        known = authenticated(ByLocalSecret(secret), rejections)
        self.runner = await http_api.serve(
            self.harness.service,
            listening,
            more_calls=calls,
            middlewares=[known],
            guard=ConnectionGuard(rejections.connections, "controller"),
        )
        token_file = secret.write_token_file(POOL, self.broker.broker_id)
        self.channel = ControllerChannel(
            (f"127.0.0.1:{port}",),
            lambda: HttpTransport(token_file),
            pool=POOL,
            broker_id=self.broker.broker_id,
        )
        self.channel.broker_epoch = self.broker.epoch
        await self.channel.start(Epochs())
        return self

    async def find_leader(self) -> ReviewAccessResponse:
        """As a heartbeat does; calls in the background then have an address."""
        request = ReviewAccessRequest(self.channel.requesting_broker(), Principal("nobody"), ())
        return await self.channel.call(
            REVIEW_ACCESS_PATH, request, ReviewAccessResponse, timeout_ms=5_000
        )

    async def stop(self) -> None:
        await self.channel.close()
        await self.runner.cleanup()


async def connected(kafka_client: KafkaTestClient, principal: Principal) -> Client:
    client = await Client.connect(kafka_client)
    await client.ask(produce(b"", acks=1, times=0))
    kafka_client.authenticate(principal)
    return client


def test_records_go_only_where_the_roles_file_allows(tmp_path: Path) -> None:
    async def run() -> None:
        (tmp_path / ROLES_FILE).write_text(ROLES)
        cluster = await Cluster().start(tmp_path)
        assert (await cluster.find_leader()).error is ErrorCode.NONE
        authorizer = Authorizer(cluster.channel.review_accesses, pool=POOL)
        kafka_client = KafkaTestClient(tmp_path / "data", ListenerLimits(), authorizer=authorizer)
        await kafka_client.start()
        kafka_client.push()
        batch = build_batch([NewRecord(None, b"v")], timestamp_ms=1)
        try:
            writer = await connected(kafka_client, Principal("writer"))
            assert DENIED not in await writer.ask(produce(batch))
            assert DENIED in await writer.ask(fetch())
            writer.close()
            reader = await connected(kafka_client, Principal("other", ("readers",)))
            assert b"v" in await reader.ask(fetch())
            assert DENIED in await reader.ask(produce(batch))
            reader.close()
            stranger = await connected(kafka_client, Principal("stranger"))
            assert DENIED in await stranger.ask(fetch())
            stranger.close()
        finally:
            await kafka_client.stop()
            await cluster.stop()

    asyncio.run(run())


def test_a_broker_that_is_not_registered_is_told_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        cluster = await Cluster().start(tmp_path)
        cluster.channel.broker_epoch = BrokerEpoch(99)
        response = await cluster.find_leader()
        assert (response.error, response.allowed) == (ErrorCode.STALE_BROKER_EPOCH, ())
        await cluster.stop()

    asyncio.run(run())


def test_a_roles_file_that_cannot_be_read_is_no_answer(tmp_path: Path) -> None:
    async def run() -> None:
        (tmp_path / ROLES_FILE).write_text("users: [")
        cluster = await Cluster().start(tmp_path)
        await cluster.find_leader()
        authorizer = Authorizer(cluster.channel.review_accesses, pool=POOL)
        orders = Access(Verb.PRODUCE, ResourceKind.TOPIC, "orders")
        response = await cluster.channel.review_accesses(Principal("writer"), (orders,))
        assert response.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert "roles.yaml" in response.message
        assert not await authorizer.is_allowed(Principal("writer"), orders)
        await cluster.stop()

    asyncio.run(run())
