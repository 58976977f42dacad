"""Authenticate clients by the controller, which has Kubernetes review their tokens (0170).

What the controller says is cached: keyed by a SHA-256 with a random prefix, so that no token or
password stays in memory; bounded; never longer than the token lives. Clients that send the same
token at the same time share one call. While no controller responds, clients that are known are
authenticated as before for the grace time (a token until it expires), and others are not:
`AuthenticatorUnavailable`, which does not judge their credentials.
"""

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from tidemark_protocol.access_messages import (
    MAX_TOKEN_BYTES,
    REVIEW_PASSWORD_PATH,
    REVIEW_TOKEN_PATH,
    SCRAM_CREDENTIAL_PATH,
    ReviewPasswordRequest,
    ReviewTokenRequest,
    ReviewTokenResponse,
    ScramCredentialRequest,
    ScramCredentialResponse,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.topic_messages import RequestingBroker

from tidemark_broker.security.exchange import (
    Ask,
    AskPassword,
    AskScramCredential,
    AskToken,
    Found,
    Identity,
    Review,
    ScramCredential,
)

MAX_CACHED = 10_000
MAX_REJECTED = 1_000  # cached apart, so that wrong credentials displace no client that is known
MAX_CALLS = 1_000  # that wait for the controller
TOKEN_SECONDS = 300.0
BEFORE_EXPIRY_SECONDS = 10.0
PASSWORD_SECONDS = 30.0  # a Secret that is deleted is effective within this
REJECTED_SECONDS = 10.0
GRACE_SECONDS = 3600.0
MAX_SESSION_MS = 3_600_000  # of a connection; Kafka's connections.max.reauth.ms
CALL_SECONDS = 2.0
WAIT_SECONDS = 8.0  # for the controller, by a client that is not known
RETRY_SECONDS = 0.25
AGAIN_SECONDS = 5.0  # until it is asked again about a client that is known

Response = TypeVar("Response", ReviewTokenResponse, ScramCredentialResponse)


class AuthenticatorUnavailable(Exception):
    """An error: no controller responded in time, and the client is not known."""


class AskController(Protocol):
    """A call of the controller; None without a usable response."""

    def __call__(
        self, path: str, request: object, kind: type[Response], *, timeout_ms: int
    ) -> Awaitable[Response | None]: ...


@dataclass(frozen=True, slots=True)
class _Known:
    """What was found; asked again after `fresh_until_s`, used until `usable_until_s`."""

    found: Found
    fresh_until_s: float
    usable_until_s: float


class Authenticator:
    def __init__(
        self,
        ask: AskController,
        *,
        requesting: Callable[[], RequestingBroker],
        wall_clock_s: Callable[[], float],
        random_prefix: bytes,
    ) -> None:
        """Create an authenticator; `requesting` returns this broker and its epoch."""
        self._ask = ask
        self._requesting = requesting
        self._wall_clock_s = wall_clock_s
        self._prefix = random_prefix
        self._loop = asyncio.get_running_loop()
        self._known: dict[bytes, _Known] = {}  # by age of their last use
        self._rejected: dict[bytes, _Known] = {}  # by age
        self._calls: dict[bytes, asyncio.Task[Found]] = {}

    def session_ms(self, identity: Identity) -> int:
        """Return for how long a client counts as authenticated: 0 or less after the expiry.

        Also a client whose credentials do not expire is looked at again now and then.
        """
        if not identity.expires_at_ms:
            return MAX_SESSION_MS
        return min(identity.expires_at_ms - self._wall_clock_ms(), MAX_SESSION_MS)

    async def find(self, ask: Ask) -> Found:
        """Return what the controller says. Raises AuthenticatorUnavailable."""
        if isinstance(ask, AskToken):
            return await self.review_token(ask.token)
        if isinstance(ask, AskPassword):
            key = self._key("password", ask.user, ask.password)
            return await self._cached(key, lambda: self._review_password(ask))
        key = self._key("scram", ask.user, ask.mechanism)
        return await self._cached(key, lambda: self._find_scram(ask))

    async def review_token(self, token: str) -> Review:
        """Review a token. Raises AuthenticatorUnavailable."""
        if not 0 < len(token) <= MAX_TOKEN_BYTES:
            return Review(None, f"expected 1 to {MAX_TOKEN_BYTES} bytes, found {len(token)}")
        key = self._key("token", token)
        found = await self._cached(key, lambda: self._review_token(token))
        assert isinstance(found, Review)
        if found.identity is not None and self.session_ms(found.identity) <= 0:
            return Review(None, "it has expired")
        return found

    # ---- cache

    def _key(self, *parts: str) -> bytes:
        hashed = hashlib.sha256(self._prefix)
        for part in parts:
            encoded = part.encode()
            hashed.update(len(encoded).to_bytes(4, "big") + encoded)
        return hashed.digest()

    async def _cached(
        self, key: bytes, call: Callable[[], Coroutine[Any, Any, Found | None]]
    ) -> Found:
        known = self._lookup(key)
        if known is not None and self._loop.time() < known.fresh_until_s:
            return known.found
        running = self._calls.get(key)
        if running is None:
            if len(self._calls) >= MAX_CALLS:
                if known is not None:
                    return known.found
                raise AuthenticatorUnavailable("too many clients wait for the controller")
            running = self._loop.create_task(self._found(key, known, call), name="authentication")
            self._calls[key] = running
            running.add_done_callback(lambda task: self._forget(key, task))
        return await asyncio.shield(running)  # others may wait for it too

    def _lookup(self, key: bytes) -> _Known | None:
        known = self._known.pop(key, None)
        if known is not None:
            self._known[key] = known  # used last
        else:
            known = self._rejected.get(key)
        return known if known is not None and self._loop.time() < known.usable_until_s else None

    def _forget(self, key: bytes, task: asyncio.Task[Found]) -> None:
        self._calls.pop(key, None)
        if not task.cancelled():
            task.exception()  # callers that wait get it; there may be none

    async def _found(
        self,
        key: bytes,
        known: _Known | None,
        call: Callable[[], Coroutine[Any, Any, Found | None]],
    ) -> Found:
        """Ask until there is a response; a client that is known is not kept waiting for long."""
        ends_s = self._loop.time() + WAIT_SECONDS
        while True:
            found = await call()
            if found is not None:
                self._keep(key, found)
                return found
            if known is not None:
                again_s = self._loop.time() + AGAIN_SECONDS
                self._known[key] = replace(known, fresh_until_s=again_s)
                return known.found
            if self._loop.time() + RETRY_SECONDS >= ends_s:
                raise AuthenticatorUnavailable("no controller responded in time")
            await asyncio.sleep(RETRY_SECONDS)

    def _keep(self, key: bytes, found: Found) -> None:
        fresh_s, usable_s = self._lifetimes_s(found)
        now_s = self._loop.time()
        self._known.pop(key, None)
        self._rejected.pop(key, None)
        is_accepted = (
            found.principal is not None
            if isinstance(found, ScramCredential)
            else found.identity is not None
        )
        cache, limit = (self._known, MAX_CACHED) if is_accepted else (self._rejected, MAX_REJECTED)
        while len(cache) >= limit:
            del cache[next(iter(cache))]
        cache[key] = _Known(found, now_s + fresh_s, now_s + usable_s)

    def _lifetimes_s(self, found: Found) -> tuple[float, float]:
        """Return how long it counts, and how long while no controller responds."""
        if isinstance(found, ScramCredential):
            # As fresh for an unknown user: how fast a challenge comes tells no users apart.
            usable_s = PASSWORD_SECONDS if found.principal is None else GRACE_SECONDS
            return PASSWORD_SECONDS, usable_s
        if found.identity is None:
            return REJECTED_SECONDS, REJECTED_SECONDS
        expires_at_ms = found.identity.expires_at_ms
        if not expires_at_ms:
            return PASSWORD_SECONDS, GRACE_SECONDS
        left_s = expires_at_ms / 1000 - self._wall_clock_s()
        return max(0.0, min(TOKEN_SECONDS, left_s - BEFORE_EXPIRY_SECONDS)), max(0.0, left_s)

    def _wall_clock_ms(self) -> int:
        return int(self._wall_clock_s() * 1000)

    # ---- calls; None: no usable response

    async def _review_token(self, token: str) -> Review | None:
        request = ReviewTokenRequest(self._requesting(), token)
        return _review(await self._called(REVIEW_TOKEN_PATH, request, ReviewTokenResponse))

    async def _review_password(self, ask: AskPassword) -> Review | None:
        request = ReviewPasswordRequest(self._requesting(), ask.user, ask.password)
        return _review(await self._called(REVIEW_PASSWORD_PATH, request, ReviewTokenResponse))

    async def _find_scram(self, ask: AskScramCredential) -> ScramCredential | None:
        request = ScramCredentialRequest(self._requesting(), ask.user, ask.mechanism)
        response = await self._called(SCRAM_CREDENTIAL_PATH, request, ScramCredentialResponse)
        if response is None:
            return None
        try:
            salt, stored_key, server_key = (
                base64.b64decode(text, validate=True)
                for text in (response.salt, response.stored_key, response.server_key)
            )
        except (binascii.Error, ValueError):
            return None
        return ScramCredential(
            response.principal, salt, response.iterations, stored_key, server_key
        )

    async def _called(self, path: str, request: object, kind: type[Response]) -> Response | None:
        response = await self._ask(path, request, kind, timeout_ms=int(CALL_SECONDS * 1000))
        if response is None or response.error is not ErrorCode.NONE:
            return None
        return response


def _review(response: ReviewTokenResponse | None) -> Review | None:
    if response is None:
        return None
    if response.principal is None:
        return Review(None, response.message)
    return Review(Identity(response.principal, response.expires_at_ms))
