"""Local mode: the secret in the data directory, and what needs a token that is made of it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tidemark_operator.controller.http_api import create_app
from tidemark_operator.manager.local.api import add_local_routes
from tidemark_operator.security.authentication import authenticated
from tidemark_operator.security.local_secret import ByLocalSecret, LocalSecret
from tidemark_operator.security.rejections import RejectionLog
from tidemark_operator.store.sqlite import SqliteStore
from tidemark_protocol.controller_messages import (
    ALLOCATE_PRODUCER_IDS_PATH,
    AllocateProducerIdsRequest,
    encode,
)
from tidemark_protocol.ids import BrokerEpoch, BrokerId
from tidemark_protocol.local_tokens import (
    broker_of_subject,
    broker_token,
    person_token,
    verified_subject,
)

from tests.support.controller_harness import POOL, Harness

ORDERS = "{apiVersion: tidemark.dev/v1alpha1, kind: Topic, metadata: {name: orders}, spec: {}}"
Client = TestClient[web.Request, web.Application]


def run(path: Path, scenario: Callable[[LocalSecret, Client], Awaitable[None]]) -> None:
    async def served() -> None:
        harness = await Harness().start(3)
        secret = LocalSecret(path)
        checks = authenticated(ByLocalSecret(secret), RejectionLog(lambda: 0.0))
        app = create_app(harness.service, middlewares=[checks])
        store = SqliteStore(path / "objects.db")
        add_local_routes(app, store, secret_file=secret.path)
        async with TestClient(TestServer(app)) as client:
            await scenario(secret, client)

    asyncio.run(asyncio.wait_for(served(), 20))


async def status_of(
    client: Client, method: str, path: str, token: str | None = None, **sent: str | bytes
) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    if "host" in sent:
        headers["Host"] = str(sent["host"])
    async with client.request(method, path, headers=headers, data=sent.get("body")) as response:
        return response.status


def test_the_secret_is_made_once_and_only_its_user_can_read_it(tmp_path: Path) -> None:
    first = LocalSecret(tmp_path)
    assert first.path.stat().st_mode & 0o777 == 0o600
    assert LocalSecret(tmp_path).secret == first.secret
    assert len(first.secret) == 64
    token_file = first.write_token_file(POOL, BrokerId(1))
    assert token_file.stat().st_mode & 0o777 == 0o600
    assert token_file.parent.stat().st_mode & 0o777 == 0o700
    assert token_file.read_text() == broker_token(first.secret, POOL, BrokerId(1))


@pytest.mark.parametrize(("mode", "content"), [(0o644, "s" * 64), (0o600, "short"), (0o600, "")])
def test_a_secret_that_others_could_read_or_half_of_one_is_replaced(
    tmp_path: Path, mode: int, content: str
) -> None:
    path = tmp_path / "controller.secret"
    path.write_text(content)
    path.chmod(mode)
    assert LocalSecret(tmp_path).secret != content.encode()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_token_names_its_subject_and_cannot_be_changed() -> None:
    secret, other = b"s" * 64, b"t" * 64
    one = broker_token(secret, POOL, BrokerId(1))
    subject = verified_subject(secret, one)
    assert subject is not None
    assert broker_of_subject(subject) == (POOL, BrokerId(1))
    person = verified_subject(secret, person_token(secret))
    assert person is not None
    assert broker_of_subject(person) is None
    mac = one.rpartition(".")[2]
    for forged in (
        one.replace(":1.", ":2."),
        broker_token(other, POOL, BrokerId(1)),
        f"local:person.{mac}",
        mac,
        "",
        ".",
        one + "0",
    ):
        assert verified_subject(secret, forged) is None


def test_reads_need_no_token_and_changes_do(tmp_path: Path) -> None:
    async def scenario(secret: LocalSecret, client: Client) -> None:
        for path in ("/v1/status", "/v1/topics", "/v1/local", "/metrics", "/healthz"):
            assert await status_of(client, "GET", path) == 200
        changes = (
            ("POST", "/v1/apply"),
            ("POST", "/v1/topics"),
            ("PATCH", "/v1/topics/orders"),
            ("DELETE", "/v1/topics/orders"),
        )
        broker = broker_token(secret.secret, POOL, BrokerId(1))
        forged = person_token(b"guessed" * 8)
        for method, path in changes:
            assert await status_of(client, method, path, body=ORDERS) == 401
            assert await status_of(client, method, path, forged, body=ORDERS) == 401
            assert await status_of(client, method, path, broker, body=ORDERS) == 403
        person = person_token(secret.secret)
        assert await status_of(client, "POST", "/v1/apply", person, body=ORDERS) == 200
        assert await status_of(client, "DELETE", "/v1/topics/orders", person) == 200

    run(tmp_path, scenario)


def test_a_name_that_was_made_to_be_this_machine_reads_nothing(tmp_path: Path) -> None:
    async def scenario(_: LocalSecret, client: Client) -> None:
        assert await status_of(client, "GET", "/v1/status", host="evil.example:17070") == 403

    run(tmp_path, scenario)


def test_brokers_speak_for_themselves(tmp_path: Path) -> None:
    async def scenario(secret: LocalSecret, client: Client) -> None:
        async def allocate(token: str | None, broker_id: int = 1) -> int:
            request = AllocateProducerIdsRequest(POOL, BrokerId(broker_id), BrokerEpoch(2))
            body = encode(request)
            return await status_of(client, "POST", ALLOCATE_PRODUCER_IDS_PATH, token, body=body)

        one = broker_token(secret.secret, POOL, BrokerId(1))
        assert await allocate(one) == 200
        assert await allocate(one, broker_id=2) == 403
        assert await allocate(None) == 401
        assert await allocate(person_token(secret.secret)) == 403
        assert await allocate(broker_token(b"guessed" * 8, POOL, BrokerId(1))) == 401

    run(tmp_path, scenario)
