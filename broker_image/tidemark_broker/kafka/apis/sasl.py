"""Answer SaslHandshake and SaslAuthenticate: run the exchange of a mechanism on its connection.

Wrong credentials are answered with SASL_AUTHENTICATION_FAILED and a sentence, a moment after the
request, and the connection ends. While the controller does not know credentials, the connection
ends without that error, because clients stop for good at it. A client may authenticate again on the
same connection (KIP-368), by the same mechanism as the same user.
"""

import asyncio
import logging
from dataclasses import dataclass

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.network.client_session import ClientSession
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest
from tidemark_broker.kafka_wire.messages.api_versions import SupportedApi
from tidemark_broker.kafka_wire.messages.cooperative_steps import all_steps
from tidemark_broker.kafka_wire.messages.frames import framed
from tidemark_broker.kafka_wire.messages.sasl import (
    BARE_VERSION,
    SASL_AUTHENTICATE_API,
    SASL_HANDSHAKE_API,
)
from tidemark_broker.kafka_wire.messages.schema import Api, Values
from tidemark_broker.security.authenticator import Authenticator, AuthenticatorUnavailable
from tidemark_broker.security.exchange import (
    AskScramCredential,
    Authenticated,
    AuthenticationFailed,
    Challenge,
    Exchange,
    Step,
)
from tidemark_broker.security.mechanisms import MECHANISMS, new_exchange

CHALLENGE_SECONDS = 0.05  # of SCRAM: the time of a challenge tells no users apart
UNAVAILABLE = "no controller responded in time to say who the client is"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Outcome:
    auth_bytes: bytes = b""
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    lifetime_ms: int = 0


def sasl_handlers(context: HandlerContext) -> tuple[ApiHandler, ...]:
    server = _SaslServer(context)
    return (
        ApiHandler(_supported(SASL_HANDSHAKE_API), server.shake_hands),
        ApiHandler(_supported(SASL_AUTHENTICATE_API), server.authenticate),
    )


def _supported(api: Api) -> SupportedApi:
    return SupportedApi(api.api_key, api.min_version, api.max_version)


class _SaslServer:
    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()

    def shake_hands(self, request: KafkaRequest) -> None:
        requested = SASL_HANDSHAKE_API.decode_request(request.reader, request.version)
        _answer(SASL_HANDSHAKE_API, request, self._handshake(request, requested["mechanism"]))

    def _handshake(self, request: KafkaRequest, mechanism: str) -> Values:
        session = request.session
        if not session.can_authenticate or self._context.authenticator is None:
            return {"error": ErrorCode.ILLEGAL_SASL_STATE}
        exchange = new_exchange(mechanism, self._new_nonce)
        if exchange is None or session.mechanism not in ("", mechanism):
            session.exchange = None
            return {"error": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "mechanisms": MECHANISMS}
        session.exchange = exchange
        session.mechanism = mechanism
        session.takes_bare_bytes = request.version == 0
        return {"error": ErrorCode.NONE, "mechanisms": MECHANISMS}

    def authenticate(self, request: KafkaRequest) -> None:
        if request.version == BARE_VERSION:
            auth_bytes = bytes(request.reader.data)
        else:
            requested = SASL_AUTHENTICATE_API.decode_request(request.reader, request.version)
            auth_bytes = bytes(requested["auth_bytes"])
        self._context.answering.start(request, self._respond(request, auth_bytes))

    # ---- inside

    def _new_nonce(self) -> str:
        return self._context.new_uuid().hex + self._context.new_uuid().hex

    async def _respond(self, request: KafkaRequest, auth_bytes: bytes) -> None:
        session = request.session
        try:
            outcome = await self._outcome(session, auth_bytes)
        except AuthenticatorUnavailable as error:
            request.fail(f"{UNAVAILABLE}: {error}")
            return
        except Exception as error:
            _log.exception("authentication failed unexpectedly")
            request.fail(f"SaslAuthenticate: {type(error).__name__}")
            return
        if request.version != BARE_VERSION:
            values = {
                "error": outcome.error,
                "message": outcome.message,
                "auth_bytes": outcome.auth_bytes,
                "session_lifetime_ms": outcome.lifetime_ms,
            }
            _answer(SASL_AUTHENTICATE_API, request, values)
        elif outcome.error is ErrorCode.NONE:
            request.answer(framed([outcome.auth_bytes]))
        else:  # such a frame has no place for an error
            request.fail(outcome.message or outcome.error.name)

    async def _outcome(self, session: ClientSession, auth_bytes: bytes) -> _Outcome:
        began_s = self._loop.time()
        exchange, authenticator = session.exchange, self._context.authenticator
        if exchange is None or authenticator is None:
            session.failure = "SaslAuthenticate without SaslHandshake"
            return _Outcome(error=ErrorCode.ILLEGAL_SASL_STATE, message=session.failure)
        step = await self._next_step(exchange, auth_bytes, authenticator, began_s)
        if isinstance(step, Authenticated):
            step = _accepted(session, step, authenticator)
        if isinstance(step, Challenge):
            session.rejection = step.rejection
            return _Outcome(step.data)
        session.rejection = ""
        session.exchange = None
        session.takes_bare_bytes = False
        if isinstance(step, Authenticated):
            return self._authenticated(session, step, authenticator)
        assert isinstance(step, AuthenticationFailed)
        session.failure = step.reason
        await self._until(began_s + self._context.limits.rejection_seconds)
        return _Outcome(error=ErrorCode.SASL_AUTHENTICATION_FAILED, message=step.reason)

    async def _next_step(
        self, exchange: Exchange, auth_bytes: bytes, authenticator: Authenticator, began_s: float
    ) -> Step:
        step = exchange.on_client(auth_bytes)
        if isinstance(step, Challenge | Authenticated | AuthenticationFailed):
            return step
        next_step = exchange.on_found(await authenticator.find(step))
        if isinstance(step, AskScramCredential):
            await self._until(began_s + CHALLENGE_SECONDS)
        return next_step

    async def _until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - self._loop.time()))

    def _authenticated(
        self, session: ClientSession, step: Authenticated, authenticator: Authenticator
    ) -> _Outcome:
        lifetime_ms = authenticator.session_ms(step.identity)
        session.expires_at_s = self._loop.time() + lifetime_ms / 1000
        session.principal = step.identity.principal
        session.is_authenticated = True
        session.is_certified = False
        session.on_authenticated()
        return _Outcome(step.data, lifetime_ms=lifetime_ms)


def _answer(api: Api, request: KafkaRequest, values: Values) -> None:
    """Answer a request; SASL is for every client, whatever it may do later."""
    header = request.header
    steps = api.response_steps(header.correlation_id, header.api_version, values, request.errors)
    request.answer(all_steps(steps))


def _accepted(
    session: ClientSession, step: Authenticated, authenticator: Authenticator
) -> Authenticated | AuthenticationFailed:
    """Return the step, or the failure of a client that became another, or of an expired token."""
    is_other = session.principal.name != step.identity.principal.name
    if session.is_authenticated and is_other and not session.is_certified:
        return AuthenticationFailed("the user differs from the one that the connection is of")
    if authenticator.session_ms(step.identity) <= 0:
        return AuthenticationFailed("the token has expired")
    return step
