"""Answer brokers' requests about their clients: whose a token, a password or a SCRAM name is.

Tokens are reviewed by the API server for the audience of the pool (`pool_audience`), or found in
the file of users in local mode. Passwords come from labelled Secrets or from that file. An unknown
user and a wrong password have the same answer after the same work. A response with
UNKNOWN_SERVER_ERROR says that the API server could not be asked.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

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

from tidemark_operator.controller.broker_call import BrokerCall, broker_call
from tidemark_operator.controller.service import ControllerService, NotController
from tidemark_operator.security.clients import ClientDirectory, ReviewUnavailable
from tidemark_operator.security.operator_token import OperatorTokens
from tidemark_operator.security.scram_keys import HASHES, ScramKeys, scram_keys

MAX_DERIVED = 10_000  # keys of SCRAM users
UNREACHABLE = "the API server could not be asked"

Response = TypeVar("Response", ReviewTokenResponse, ScramCredentialResponse)


class ClientReviews:
    def __init__(
        self,
        controller: ControllerService,
        clients: ClientDirectory,
        operator_tokens: OperatorTokens,
        *,
        salt_key: bytes,
    ) -> None:
        """Create it; `salt_key` is the same for all controllers of the installation."""
        self._controller = controller
        self._clients = clients
        self._operator_tokens = operator_tokens
        self._salt_key = salt_key
        self._unknown_password = secrets.token_urlsafe(24)  # the password of unknown users
        self._derived: dict[bytes, ScramKeys] = {}

    async def review_token(self, request: ReviewTokenRequest) -> ReviewTokenResponse:
        async def reviewed() -> ReviewTokenResponse:
            if len(request.token) > MAX_TOKEN_BYTES:
                return ReviewTokenResponse(ErrorCode.NONE, message="it is too long")
            pool, broker_id = request.broker.pool, request.broker.broker_id
            found = self._operator_tokens.review(pool, broker_id, request.token)
            if found is None:
                found = await self._clients.review_token(
                    pool, request.token, source=_source(request.broker)
                )
            return ReviewTokenResponse(
                ErrorCode.NONE,
                message=found.reason,
                principal=found.principal,
                expires_at_ms=found.expires_at_ms,
            )

        return await self._responded(request.broker, ReviewTokenResponse, reviewed)

    async def review_password(self, request: ReviewPasswordRequest) -> ReviewTokenResponse:
        async def reviewed() -> ReviewTokenResponse:
            user = await self._clients.find_user(request.broker.pool, request.user)
            expected = self._unknown_password if user is None else user.password
            # Of digests: their lengths say nothing.
            is_right = hmac.compare_digest(_digest(request.password), _digest(expected))
            if user is None or not is_right:
                return ReviewTokenResponse(ErrorCode.NONE, message="wrong user or password")
            return ReviewTokenResponse(ErrorCode.NONE, principal=user.principal)

        return await self._responded(request.broker, ReviewTokenResponse, reviewed)

    async def scram_credential(self, request: ScramCredentialRequest) -> ScramCredentialResponse:
        async def found() -> ScramCredentialResponse:
            if request.mechanism not in HASHES:
                return ScramCredentialResponse(
                    ErrorCode.UNSUPPORTED_SASL_MECHANISM, message=request.mechanism[:100]
                )
            pool = request.broker.pool
            user = await self._clients.find_user(pool, request.user)
            password = self._unknown_password if user is None else user.password
            keys = await self._keys(pool, request.mechanism, request.user, password)
            return ScramCredentialResponse(
                ErrorCode.NONE,
                principal=None if user is None else user.principal,
                salt=_text(keys.salt),
                iterations=keys.iterations,
                stored_key=_text(keys.stored_key),
                server_key=_text(keys.server_key),
            )

        return await self._responded(request.broker, ScramCredentialResponse, found)

    # ---- inside

    async def _keys(self, pool: str, mechanism: str, user: str, password: str) -> ScramKeys:
        """Derive keys in a worker thread; those of a password are kept, by its digest."""
        salt_key = hmac.digest(self._salt_key, pool.encode(), "sha256")
        place = _digest("\0".join((pool, mechanism, user, password)))
        keys = self._derived.get(place)
        if keys is None:
            keys = await asyncio.to_thread(scram_keys, mechanism, user, password, salt_key)
            while len(self._derived) >= MAX_DERIVED:
                del self._derived[next(iter(self._derived))]
            self._derived[place] = keys
        return keys

    async def _responded(
        self,
        broker: RequestingBroker,
        kind: type[Response],
        work: Callable[[], Awaitable[Response]],
    ) -> Response:
        """Return the response with the epoch; only the leader answers, and only its own brokers."""
        if not self._controller.is_leading:
            return kind(ErrorCode.NOT_CONTROLLER)
        epoch = self._controller.controller_epoch
        try:
            if not self._is_registered(broker):
                return kind(ErrorCode.STALE_BROKER_EPOCH, epoch, "register first")
            response = await work()
        except NotController:
            return kind(ErrorCode.NOT_CONTROLLER)
        except ReviewUnavailable as error:
            return kind(ErrorCode.UNKNOWN_SERVER_ERROR, epoch, f"{UNREACHABLE}: {error}")
        return replace(response, controller_epoch=epoch)

    def _is_registered(self, broker: RequestingBroker) -> bool:
        life = (broker.broker_id, broker.broker_epoch)
        views = self._controller.brokers(broker.pool)
        return any((view.broker_id, view.broker_epoch) == life for view in views)


def _source(broker: RequestingBroker) -> str:
    return f"{broker.pool}/{broker.broker_id}"


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _text(key: bytes) -> str:
    return base64.b64encode(key).decode()


def review_calls(reviews: ClientReviews) -> dict[str, BrokerCall]:
    """Return what brokers may ask about their clients, by path."""
    return {
        REVIEW_TOKEN_PATH: broker_call(ReviewTokenRequest, reviews.review_token),
        REVIEW_PASSWORD_PATH: broker_call(ReviewPasswordRequest, reviews.review_password),
        SCRAM_CREDENTIAL_PATH: broker_call(ScramCredentialRequest, reviews.scram_credential),
    }
