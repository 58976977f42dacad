"""Find out who sends each request of an HTTP server, before its body is read.

One middleware for each server: it knows the route's owners (`route_owners.py`), has the sender
identified, and answers 401, 403 or 503 with a sentence that says what to do. A handler of broker
messages gets the sender's identity by `broker_of`.
"""

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware
from tidemark_protocol.access_messages import (
    CONTROLLER_AUDIENCE,
    MAX_TOKEN_BYTES,
    Principal,
)

from tidemark_operator.security.broker_identity import BrokerIdentity, BrokerPods
from tidemark_operator.security.guarded_site import connection_of
from tidemark_operator.security.pool_permissions import PoolPermissions
from tidemark_operator.security.rejections import Reason, RejectionLog, SenderRejected
from tidemark_operator.security.route_owners import (
    Owner,
    Owners,
    is_action,
    names_pool,
    owners_of,
)
from tidemark_operator.security.token_review import TokenReviews

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
HOW_PEOPLE = (
    "use `kubectl port-forward` (docs/operations/security.md), or send a token as"
    " `Authorization: Bearer`"
)

Sender = BrokerIdentity | Principal | None  # None: everyone
SENDER = web.RequestKey("sender", object)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Authentication(Protocol):
    async def sender_of(self, request: web.Request, owners: Owners) -> Sender:
        """Return who sends a request of a route with these owners. Raises SenderRejected."""
        ...


def broker_of(request: web.Request) -> BrokerIdentity:
    """Return the broker that sends a request. Raises SenderRejected if none was identified."""
    sender = request.get(SENDER)
    if not isinstance(sender, BrokerIdentity):
        raise SenderRejected(Reason.NO_TOKEN, "only brokers send this: send the token of a broker")
    return sender


def authenticated(authentication: Authentication, rejections: RejectionLog) -> Middleware:
    """Return the middleware of one server."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = connection_of(request)
        if connection is not None:
            connection.has_request()
        if request.match_info.http_exception is not None:
            return await handler(request)  # there is no such route
        try:
            owners = _owners(request)
            if Owner.EVERYONE not in owners:
                sender = request[SENDER] = await authentication.sender_of(request, owners)
                if sender is not None and connection is not None:
                    connection.admit()
            return await handler(request)
        except SenderRejected as rejected:
            address = address_of(request)
            rejections.record(request.method, request.path, address, rejected)
            return problem(rejected)

    return check


def _owners(request: web.Request) -> Owners:
    owners = owners_of(request.method, route_of(request))
    if not owners:
        raise SenderRejected(Reason.NO_OWNER, "this route has no owner, so it is closed")
    return owners


def route_of(request: web.Request) -> str:
    """Return the path as the route was registered, e.g. `/ui/{name}`."""
    resource = request.match_info.route.resource
    return "" if resource is None else resource.canonical


def problem(rejected: SenderRejected) -> web.Response:
    headers = {"Cache-Control": "no-store"}
    if rejected.status == 401:
        error = ', error="invalid_token"' if rejected.reason is Reason.INVALID_TOKEN else ""
        headers["WWW-Authenticate"] = f'Bearer realm="tidemark"{error}'
    if rejected.status == 503:
        headers["Retry-After"] = "1"
    return web.Response(
        status=rejected.status,
        body=msgspec.json.encode({"problem": str(rejected), "problems": [str(rejected)]}),
        content_type="application/json",
        headers=headers,
    )


def address_of(request: web.Request) -> str:
    """Return the sender's IP address; an IPv4 address as such, also on a socket of both."""
    try:
        address = ipaddress.ip_address(request.remote or "")
    except ValueError:
        return request.remote or ""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def bearer_token(request: web.Request) -> str | None:
    """Return the token of a request, None without one. Raises SenderRejected."""
    found = request.headers.getall(hdrs.AUTHORIZATION, ())
    if not found:
        return None
    scheme, _, token = found[0].strip().partition(" ")
    token = token.strip()
    if len(found) != 1 or scheme.lower() != "bearer" or not token:
        raise SenderRejected(
            Reason.INVALID_TOKEN, "expected one header `Authorization: Bearer TOKEN`"
        )
    if len(token) > MAX_TOKEN_BYTES:
        raise SenderRejected(
            Reason.INVALID_TOKEN, f"expected a token of at most {MAX_TOKEN_BYTES} bytes"
        )
    return token


def check_loopback_host(request: web.Request) -> None:
    """Check that a browser asked for a loopback address, not for a name that was made to be one.

    Raises SenderRejected.
    """
    host = request.headers.get(hdrs.HOST, "")
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    if name not in LOOPBACK_HOSTS:
        raise SenderRejected(
            Reason.UNKNOWN_HOST,
            f"expected a request for 127.0.0.1 or localhost, found one for {host[:100]!r}",
        )


class OnLoopback:
    """Of the port for people in the operator's pod: who reached it may read."""

    async def sender_of(self, request: web.Request, owners: Owners) -> Sender:
        check_loopback_host(request)
        if Owner.PEOPLE not in owners:
            raise SenderRejected(Reason.NO_OWNER, "this port serves people only")
        return None


class ByKubernetes:
    """Of the ports that the cluster's network reaches: tokens, which the API server reviews."""

    def __init__(
        self,
        tokens: TokenReviews,
        permissions: PoolPermissions,
        pods: BrokerPods,
        *,
        peer: str,
        accepts_old_brokers: bool,
        metrics_need_token: bool,
    ) -> None:
        """Create it; `peer` is the user name of the operators' ServiceAccount."""
        self._tokens = tokens
        self._permissions = permissions
        self._pods = pods
        self._peer = peer
        self._accepts_old_brokers = accepts_old_brokers
        self._metrics_need_token = metrics_need_token

    async def sender_of(self, request: web.Request, owners: Owners) -> Sender:
        if Owner.MONITORING in owners and not self._metrics_need_token:
            return None
        address, token = address_of(request), bearer_token(request)
        if token is None:
            return self._without_token(address, owners)
        reviewed = await self._tokens.review(token, CONTROLLER_AUDIENCE, source=address)
        if Owner.BROKERS in owners:
            return await self._pods.identity_of(reviewed)
        if not (Owner.PEER_OPERATOR in owners and reviewed.principal.name == self._peer):
            route = route_of(request)
            pool = request.query.get("pool", "") if names_pool(route) else ""
            verb = "alter" if is_action(route) else "get"
            await self._check_may(verb, reviewed.principal, pool)
        return reviewed.principal

    def _without_token(self, address: str, owners: Owners) -> BrokerIdentity:
        if Owner.BROKERS not in owners:
            raise SenderRejected(Reason.NO_TOKEN, f"a token is needed: {HOW_PEOPLE}")
        old = self._pods.at_address(address) if self._accepts_old_brokers else None
        if old is None:
            raise SenderRejected(
                Reason.NO_TOKEN,
                "only brokers send this: send the token of the broker's pod"
                " (TIDEMARK_CONTROLLER_TOKEN_FILE) as `Authorization: Bearer`",
            )
        return old

    async def _check_may(self, verb: str, principal: Principal, pool: str) -> None:
        namespace, _, name = pool.partition("/")
        if not await self._permissions.may(verb, principal, namespace, name):
            of = f"of {pool[:320]}" if pool else "in all namespaces"
            raise SenderRejected(
                Reason.NO_PERMISSION,
                f"{principal.name} needs the permission `{verb}` on brokerpools.tidemark.dev {of}",
                sender=principal.name,
            )
