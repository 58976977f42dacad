"""Find out who the client of a request is: `Authorization: Bearer` with a token (RFC 6750).

The same tokens and the same cache as on the Kafka port. Health and metrics need no token: probes
and Prometheus have none, and no record is in them. What is found is in the request's scope, for
hot routes and FastAPI's alike. A response that lasts ends with the token, or after an hour.

A client without that header is known by the certificate that its connection showed, if any (0186).
It has no token, so nothing that this broker asks others in its name can be done for it.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any

from tidemark_protocol.access_messages import ANONYMOUS, Principal
from tidemark_protocol.connection_rejections import ConnectionRejections
from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.http.problems import HttpProblem, Outcome
from tidemark_broker.http.request import (
    ADMIT,
    CERTIFICATE,
    LISTENER,
    PRINCIPAL,
    Request,
    authorization_of,
)
from tidemark_broker.http.response import Scope
from tidemark_broker.security.authenticator import Authenticator, AuthenticatorUnavailable
from tidemark_broker.security.client_certificate import CertifiedClient
from tidemark_broker.security.exchange import Identity, Review

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/healthy", "/ready", "/metrics"})
_BEARER = re.compile(rb"(?i:bearer) +([A-Za-z0-9\-._~+/]+=*)")


class NotAuthenticated(HttpProblem):
    """An error: the request has no token, or one that is not valid."""

    def __init__(self, scope: Scope, error: str, detail: str) -> None:
        """Create it; `error` is one of RFC 6750, or "" without a token."""
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, detail, must_close=_has_body(scope))
        self.challenge = 'Bearer realm="tidemark"' + (f', error="{error}"' if error else "")


# Finds the client that a verified certificate names.
ClientOf = Callable[[Mapping[str, Any] | None], CertifiedClient | None]


class HttpAuthentication:
    def __init__(
        self,
        authenticator: Authenticator,
        requires: Callable[[str], bool],
        rejections: ConnectionRejections,
        *,
        may: Callable[[str], bool],
        client_of: ClientOf = lambda _: None,
    ) -> None:
        """Create it; `requires` and `may` say of a listener's name whether clients authenticate."""
        self._rejections = rejections
        self._authenticator = authenticator
        self._requires = requires
        self._may = may
        self._client_of = client_of

    async def authenticate(self, scope: Scope) -> float | None:
        """Set the principal of a request; return the loop's time at which that is over, or None.

        Raises HttpProblem (401, 503).
        """
        if scope["path"] in OPEN_PATHS or not self._asks(scope):
            return None
        try:
            identity = await self._identity(scope)
        except NotAuthenticated as error:
            client = scope.get("client")
            self._rejections.note(
                client[0] if client else "",
                "authentication failed",
                error.detail,
                protocol="http",
                listener=scope.get(LISTENER, ""),
            )
            raise
        scope[PRINCIPAL] = identity.principal
        admit: Callable[[], None] | None = scope.get(ADMIT)
        if admit is not None:
            admit()
        session_ms = self._authenticator.session_ms(identity)
        return asyncio.get_running_loop().time() + session_ms / 1000

    async def _identity(self, scope: Scope) -> Identity:
        """Return who sent it, by its token or else by its certificate."""
        certified = None if authorization_of(scope) else self._client_of(scope.get(CERTIFICATE))
        if certified is not None:
            if certified.identity is None:
                reason = f"the client's certificate is not accepted: {certified.reason}"
                raise NotAuthenticated(scope, "", reason)
            return certified.identity
        review = await self._review(scope)
        if review.identity is None:
            raise NotAuthenticated(
                scope, "invalid_token", f"the token is not valid: {review.reason}"
            )
        return review.identity

    def _asks(self, scope: Scope) -> bool:
        """Return whether the client has to say who it is, or does so where it may."""
        listener = scope.get(LISTENER, "")
        if self._requires(listener):
            return True
        authorization = authorization_of(scope)
        is_said = _BEARER.fullmatch(authorization) is not None
        return self._may(listener) and (is_said or (not authorization and CERTIFICATE in scope))

    async def _review(self, scope: Scope) -> Review:
        authorization = authorization_of(scope)
        if not authorization:
            raise NotAuthenticated(scope, "", "expected Authorization: Bearer TOKEN, found none")
        token = _BEARER.fullmatch(authorization)
        if token is None:
            raise NotAuthenticated(
                scope, "invalid_request", "expected Authorization: Bearer TOKEN, found another form"
            )
        try:
            return await self._authenticator.review_token(token[1].decode())
        except AuthenticatorUnavailable as error:
            raise HttpProblem(
                ErrorCode.REQUEST_TIMED_OUT,
                f"the client is not known yet: {error}",
                status=503,
                outcome=Outcome.NOT_WRITTEN,
                retry_after_seconds=1,
                must_close=_has_body(scope),
            ) from error


def principal_of(scope: Scope) -> Principal:
    """Return who sent the request: ANONYMOUS where its listener does not ask."""
    found: Principal = scope.get(PRINCIPAL, ANONYMOUS)
    return found


def require_token(request: Request, what: str) -> None:
    """Raise HttpProblem (403) for a client that is known without a token, by a certificate."""
    if request.principal != ANONYMOUS and not request.authorization:
        raise HttpProblem(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{what}: other brokers know the client by its token only, and a client certificate"
            " has none; send a token (Authorization: Bearer)",
            status=403,
            outcome=Outcome.NOT_WRITTEN,
        )


def _has_body(scope: Scope) -> bool:
    return scope["method"] not in ("GET", "HEAD", "DELETE")
