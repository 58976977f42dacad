"""Say which access each HTTP route needs, and check it for clients that have names.

The table covers all routes, those of FastAPI too; the dispatcher in app.py asks before an endpoint
runs. Names that only a body has are checked by their endpoint (`Request.require`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from tidemark_protocol.access_messages import ANONYMOUS, Access, ResourceKind, Verb
from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.http.problems import HttpProblem
from tidemark_broker.http.request import Request
from tidemark_broker.http.response import Scope
from tidemark_broker.metadata.metadata_cache import MetadataCache
from tidemark_broker.security.access_log import Origin
from tidemark_broker.security.authorizer import Authorizer
from tidemark_broker.security.role_text import denial, resource_of, role_of

VISIBLE_TOPICS = "tidemark.visible-topics"  # of the scope: a set of names, where it is checked
MAX_LISTED = 1_000  # topics that are asked for, each, to make a list
MAX_NAME = 1_000  # a longer name needs the access to all

_ERRORS = {
    ResourceKind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceKind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceKind.POOL: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


@dataclass(frozen=True, slots=True)
class RouteAccess:
    """The access that a route needs to the resource that the path's first parameter names.

    `lists`: the route answers with what may be described.
    """

    verb: Verb | None = None
    kind: ResourceKind = ResourceKind.TOPIC
    lists: bool = False


_NOTHING = RouteAccess()
_PRODUCE = RouteAccess(Verb.PRODUCE)
_CONSUME = RouteAccess(Verb.CONSUME)
_DESCRIBE = RouteAccess(Verb.DESCRIBE)
_GROUP = RouteAccess(Verb.CONSUME, ResourceKind.GROUP)
_POOL = RouteAccess(Verb.DESCRIBE, ResourceKind.POOL)
_TOPIC = "/topics/{topic}"
_PARTITION = _TOPIC + "/partitions/{partition}"
_INSTANCE = "/consumers/{group}/instances/{name}"

ROUTE_ACCESS: Mapping[tuple[str, str], RouteAccess] = {
    ("POST", _TOPIC): _PRODUCE,
    ("POST", _PARTITION): _PRODUCE,
    ("GET", _PARTITION + "/records"): _CONSUME,
    ("POST", "/consumers/{group}"): _GROUP,
    ("DELETE", _INSTANCE): _GROUP,
    ("GET", _INSTANCE + "/subscription"): _GROUP,
    ("POST", _INSTANCE + "/subscription"): _GROUP,
    ("DELETE", _INSTANCE + "/subscription"): _GROUP,
    ("GET", _INSTANCE + "/assignments"): _GROUP,
    ("POST", _INSTANCE + "/assignments"): _GROUP,
    ("GET", _INSTANCE + "/records"): _GROUP,
    ("GET", _INSTANCE + "/offsets"): _GROUP,
    ("POST", _INSTANCE + "/offsets"): _GROUP,
    ("POST", _INSTANCE + "/positions"): _GROUP,
    ("POST", _INSTANCE + "/positions/beginning"): _GROUP,
    ("POST", _INSTANCE + "/positions/end"): _GROUP,
    ("GET", "/healthz"): _NOTHING,
    ("GET", "/readyz"): _NOTHING,
    ("GET", "/healthy"): _NOTHING,
    ("GET", "/ready"): _NOTHING,
    ("GET", "/topics"): RouteAccess(Verb.DESCRIBE, lists=True),
    ("GET", _TOPIC): _DESCRIBE,
    ("GET", _TOPIC + "/partitions"): _DESCRIBE,
    ("GET", _PARTITION): _DESCRIBE,
    ("GET", _PARTITION + "/offsets"): _DESCRIBE,
    ("GET", _PARTITION + "/replica"): _DESCRIBE,
    ("GET", "/brokers"): _NOTHING,
    ("GET", "/groups"): _POOL,
    ("GET", "/metrics"): _NOTHING,  # it asks for no token (authentication.py)
    ("POST", "/producers"): _NOTHING,
    ("GET", "/"): _NOTHING,
    ("GET", "/docs"): _NOTHING,
    ("GET", "/openapi"): _NOTHING,
    ("GET", "/openapi/v3"): _NOTHING,
    ("GET", "/openapi.json"): _NOTHING,
}


class HttpAccess:
    """The check of requests that came in by the listeners `checked`.

    At those that are `optional` clients without a name are not checked.
    """

    def __init__(
        self,
        authorizer: Authorizer,
        metadata: MetadataCache,
        *,
        checked: Collection[str],
        optional: Collection[str] = (),
    ) -> None:
        self._authorizer = authorizer
        self._metadata = metadata
        self._checked = frozenset(checked)
        self._optional = frozenset(optional)

    def is_checked(self, request: Request) -> bool:
        return request.listener in self._checked and not (
            request.principal is ANONYMOUS and request.listener in self._optional
        )

    async def check_route(
        self, request: Request, method: str, template: str, parameters: Sequence[str]
    ) -> None:
        """Check a hot route, and let its endpoint check more. Raises HttpProblem (403)."""
        request.access = self
        await self._check(request, ROUTE_ACCESS[method, template], parameters)

    async def check_path(self, request: Request, scope: Scope) -> None:
        """Check a path that FastAPI serves. Raises HttpProblem (403)."""
        parts = scope["path"].split("/")
        found = _route_of(scope["method"], parts)
        if found.lists:
            names = [name for name in self._metadata.topics if self._metadata.served_topic(name)]
            scope[VISIBLE_TOPICS] = await self._visible(request, names)
            return
        await self._check(request, found, parts[2:3])

    async def require(
        self, request: Request, verb: Verb, kind: ResourceKind, names: Iterable[str]
    ) -> None:
        """Raise HttpProblem (403) unless all of these are allowed."""
        accesses = [Access(verb, kind, name if len(name) <= MAX_NAME else "") for name in names]
        await self._learn(request, accesses)
        for access in accesses:
            if self._authorizer.known(request.principal, access) is not True:
                self._authorizer.log.denied(_origin(request), access)
                raise self._problem(request, access)

    # ---- inside

    async def _check(
        self, request: Request, needed: RouteAccess, parameters: Sequence[str]
    ) -> None:
        if needed.verb is None:
            return
        if needed.kind is ResourceKind.POOL:
            name = self._authorizer.pool_name
        elif needed.kind is ResourceKind.GROUP:
            name = unquote(parameters[0])
        else:
            name = parameters[0]
        await self.require(request, needed.verb, needed.kind, (name,))

    async def _visible(self, request: Request, names: Sequence[str]) -> frozenset[str]:
        """Return the topics of a list, as `visible` of kafka/apis/access_rule.py does."""
        every = Access(Verb.DESCRIBE, ResourceKind.TOPIC)
        await self._learn(request, (every,))
        if self._authorizer.known(request.principal, every):
            return frozenset(names)
        if len(names) <= MAX_LISTED:
            accesses = [Access(Verb.DESCRIBE, ResourceKind.TOPIC, name) for name in names]
            await self._learn(request, accesses)
        allowed = self._authorizer.allowed_names(
            request.principal, Verb.DESCRIBE, ResourceKind.TOPIC
        )
        return allowed.intersection(names)

    async def _learn(self, request: Request, accesses: Iterable[Access]) -> None:
        known, principal = self._authorizer.known, request.principal
        unknown = [access for access in accesses if known(principal, access) is None]
        if unknown:
            await self._authorizer.ensure(principal, unknown)

    def _problem(self, request: Request, access: Access) -> HttpProblem:
        namespace = self._authorizer.namespace
        return HttpProblem(
            _ERRORS[access.kind],
            denial(request.principal, access, namespace),
            members={
                "verb": access.verb.value,
                "resource": resource_of(access),
                "role": role_of(access, namespace),
            },
        )


def no_checks() -> HttpAccess:
    """Return the check of a broker whose HTTP clients have no names."""
    return HttpAccess(Authorizer(), MetadataCache(), checked=())


def _route_of(method: str, parts: Sequence[str]) -> RouteAccess:
    """Return the access of a path; one that no route has needs the right to describe the pool."""
    for (each, template), needed in ROUTE_ACCESS.items():
        shape = template.split("/")
        if each == method and len(shape) == len(parts):
            pairs = zip(shape, parts, strict=True)
            if all(wanted == part or wanted.startswith("{") for wanted, part in pairs):
                return needed
    return _POOL


def _origin(request: Request) -> Origin:
    return Origin(
        request.principal,
        request.path.split("?")[0][:MAX_NAME],
        request.listener,
        request.client_host,
        "",
    )
