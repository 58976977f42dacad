"""What is asked of the controller about clients, what is kept, and what counts without it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tidemark_broker.security import authenticator as module
from tidemark_broker.security.authenticator import Authenticator, AuthenticatorUnavailable
from tidemark_broker.security.exchange import (
    AskPassword,
    AskScramCredential,
    Review,
    ScramCredential,
)
from tidemark_protocol.access_messages import (
    MAX_TOKEN_BYTES,
    Principal,
    ReviewTokenResponse,
    ScramCredentialResponse,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId
from tidemark_protocol.topic_messages import RequestingBroker

from tests.unit.broker.jumping_loop import run_without_waiting

PRINCIPAL = Principal("system:serviceaccount:shop:orders")
WALL_S = 1_000_000.0


class Controller:
    """Answers with `response`; None: it is away."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.response: Any = ReviewTokenResponse(ErrorCode.NONE, principal=PRINCIPAL)
        self.delay_s = 0.0

    async def __call__(
        self, path: str, request: object, kind: type[Any], *, timeout_ms: int
    ) -> Any:
        self.calls.append(request)
        await asyncio.sleep(self.delay_s)
        return self.response


def scenario(check: Callable[[Authenticator, Controller], Awaitable[None]]) -> None:
    async def main() -> None:
        controller = Controller()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        authenticator = Authenticator(
            controller,
            requesting=lambda: RequestingBroker("shop/default", BrokerId(1), BrokerEpoch(3)),
            wall_clock_s=lambda: WALL_S + loop.time() - began_s,
            random_prefix=b"",
        )
        await check(authenticator, controller)

    run_without_waiting(main)


def expiring(seconds: float) -> ReviewTokenResponse:
    expires_at_ms = int((WALL_S + seconds) * 1000)
    return ReviewTokenResponse(ErrorCode.NONE, principal=PRINCIPAL, expires_at_ms=expires_at_ms)


def test_a_token_is_reviewed_once_in_five_minutes() -> None:
    async def check(authenticator: Authenticator, controller: Controller) -> None:
        controller.response = expiring(3600)
        for _ in range(3):
            review = await authenticator.review_token("t")
            assert review.identity is not None and review.identity.principal == PRINCIPAL
        assert len(controller.calls) == 1
        await asyncio.sleep(301)
        await authenticator.review_token("t")
        assert len(controller.calls) == 2

    scenario(check)


def test_concurrent_reviews_of_a_token_share_one_call() -> None:
    async def check(authenticator: Authenticator, controller: Controller) -> None:
        controller.delay_s = 1.0
        found = await asyncio.gather(*(authenticator.review_token("t") for _ in range(100)))
        assert {review.identity is not None for review in found} == {True}
        assert len(controller.calls) == 1

    scenario(check)


def test_a_caller_that_leaves_does_not_end_the_review_of_others() -> None:
    async def check(authenticator: Authenticator, controller: Controller) -> None:
        controller.delay_s = 1.0
        first, second = (asyncio.create_task(authenticator.review_token("t")) for _ in range(2))
        await asyncio.sleep(0.5)
        first.cancel()
        assert (await second).identity is not None

    scenario(check)


def test_a_rejected_token_is_asked_about_again_after_ten_seconds() -> None:
    async def check(authenticator: Authenticator, controller: Controller) -> None:
        controller.response = ReviewTokenResponse(ErrorCode.NONE, message="expired")
        assert await authenticator.review_token("t") == Review(None, "expired")
        await asyncio.sleep(9)
        await authenticator.review_token("t")
        assert len(controller.calls) == 1
        controller.response = expiring(3600)
        await asyncio.sleep(2)
        assert (await authenticator.review_token("t")).identity is not None

    scenario(check)


def test_without_a_controller_known_clients_go_on_until_their_tokens_expire() -> None:
    async def check(authenticator: Authenticator, controller: Controller) -> None:
        controller.response = expiring(1000)
        await authenticator.review_token("known")
        controller.response = None
        await asyncio.sleep(600)
        assert (await authenticator.review_token("known")).identity is not None
        with pytest.raises(AuthenticatorUnavailable):
            await authenticator.review_token("unknown")
        await asyncio.sleep(401)
        with pytest.raises(AuthenticatorUnavailable):
            await authenticator.review_token("known")

    scenario(check)


def test_without_a_controller_a_known_client_waits_seldom() -> None:
    async def check(authenticator: Authenticator, controller: Controller) -> None:
        controller.response = expiring(10_000)
        await authenticator.review_token("known")
        controller.response, controller.delay_s = None, 2.0
        await asyncio.sleep(301)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for _ in range(1000):
            assert (await authenticator.review_token("known")).identity is not None
        assert loop.time() - began_s == 2.0
        await asyncio.sleep(5)
        controller.response, controller.delay_s = ReviewTokenResponse(ErrorCode.NONE), 0.0
        assert (await authenticator.review_token("known")).identity is None, "revoked meanwhile"

    scenario(check)


def test_an_expired_token_is_not_valid_whatever_the_controller_says() -> None:
    async def check(authenticator: Authenticator, controller: Controller) -> None:
        controller.response = expiring(-1)
        assert (await authenticator.review_token("t")).identity is None

    scenario(check)


def test_an_error_of_the_controller_is_no_answer() -> None:
    async def check(authenticator: Authenticator, controller: Controller) -> None:
        controller.response = ReviewTokenResponse(
            ErrorCode.UNKNOWN_SERVER_ERROR, principal=PRINCIPAL
        )
        with pytest.raises(AuthenticatorUnavailable):
            await authenticator.review_token("t")

    scenario(check)


def test_a_client_that_waits_is_served_when_the_controller_is_back() -> None:
    async def check(authenticator: Authenticator, controller: Controller) -> None:
        controller.response = None
        waiting = asyncio.create_task(authenticator.review_token("t"))
        await asyncio.sleep(5)
        controller.response = expiring(3600)
        assert (await waiting).identity is not None

    scenario(check)


def test_a_token_that_is_too_long_is_not_sent_on() -> None:
    async def check(authenticator: Authenticator, controller: Controller) -> None:
        for token in ("", "x" * (MAX_TOKEN_BYTES + 1)):
            assert (await authenticator.review_token(token)).identity is None
        assert controller.calls == []

    scenario(check)


def test_what_is_kept_is_bounded_and_rejections_displace_no_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_CACHED", 10)
    monkeypatch.setattr(module, "MAX_REJECTED", 5)

    async def check(authenticator: Authenticator, controller: Controller) -> None:
        controller.response = expiring(3600)
        await authenticator.review_token("known")
        controller.response = ReviewTokenResponse(ErrorCode.NONE)
        for number in range(100):
            await authenticator.review_token(f"wrong-{number}")
        calls = len(controller.calls)
        await authenticator.review_token("known")
        assert len(controller.calls) == calls
        controller.response = expiring(3600)
        for number in range(20):
            await authenticator.review_token(f"right-{number}")
        await authenticator.review_token("known")
        assert len(controller.calls) == calls + 21, "it was the least recently used"

    scenario(check)


def test_too_many_waiting_clients_are_turned_away_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CALLS", 3)

    async def check(authenticator: Authenticator, controller: Controller) -> None:
        controller.delay_s = 1.0
        waiting = [asyncio.create_task(authenticator.review_token(f"t{n}")) for n in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(AuthenticatorUnavailable):
            await authenticator.review_token("one more")
        await asyncio.gather(*waiting)

    scenario(check)


def test_a_password_is_known_by_its_user() -> None:
    async def check(authenticator: Authenticator, controller: Controller) -> None:
        await authenticator.find(AskPassword("a", "bc"))
        await authenticator.find(AskPassword("ab", "c"))
        assert len(controller.calls) == 2

    scenario(check)


def test_a_scram_credential_is_decoded_and_a_malformed_one_is_no_answer() -> None:
    async def check(authenticator: Authenticator, controller: Controller) -> None:
        ask = AskScramCredential("user", "SCRAM-SHA-256")
        controller.response = ScramCredentialResponse(
            ErrorCode.NONE, salt="!", stored_key="YQ==", server_key="Yg=="
        )
        with pytest.raises(AuthenticatorUnavailable):
            await authenticator.find(ask)
        controller.response = ScramCredentialResponse(
            ErrorCode.NONE,
            principal=PRINCIPAL,
            salt="c2FsdA==",
            iterations=8192,
            stored_key="YQ==",
            server_key="Yg==",
        )
        found = await authenticator.find(ask)
        assert isinstance(found, ScramCredential)
        assert (found.salt, found.stored_key, found.server_key) == (b"salt", b"a", b"b")

    scenario(check)
