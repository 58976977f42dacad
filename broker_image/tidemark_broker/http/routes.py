"""List the hot routes: the one table that the dispatcher serves and that OpenAPI shows.

FastAPI is loaded later (decision 0017), so nothing here imports it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tidemark_broker.http import operations
from tidemark_broker.http.consumers.routes import Action, ConsumerRoutes
from tidemark_broker.http.fetch import FetchRoute
from tidemark_broker.http.health import HealthRoutes
from tidemark_broker.http.operations import Operation
from tidemark_broker.http.produce import ProduceRoute
from tidemark_broker.http.response import AnyResponse, Scope

Endpoint = Callable[..., Awaitable[AnyResponse]]  # takes the request and the path's parameters


@dataclass(frozen=True, slots=True)
class Route:
    """A route that the dispatcher serves.

    `template` has its parameters at every second part from the second on. A route without an
    operation is another name of a documented one.
    """

    method: str
    template: str
    endpoint: Endpoint
    operation: Operation | None
    metric: str  # its name in /metrics
    is_produce: bool = False
    is_limited: bool = True  # False: it answers when the broker is at its limits, and to HEAD


class RouteTable:
    def __init__(self, routes: tuple[Route, ...]) -> None:
        self.routes = routes
        self._by_shape: dict[tuple[str, int], list[tuple[Route, list[tuple[int, str]], slice]]] = {}
        for route in routes:
            parts = route.template.split("/")
            literals = [
                (at, part) for at, part in enumerate(parts) if part and not part.startswith("{")
            ]
            parameters = slice(2, 2 * (len(parts) - len(literals)), 2)
            for method in (route.method,) if route.is_limited else (route.method, "HEAD"):
                same_shape = self._by_shape.setdefault((method, len(parts)), [])
                same_shape.append((route, literals, parameters))

    def find(self, method: str, scope: Scope) -> tuple[Route, list[str]] | None:
        """Return the route and the path's parameters, or None if FastAPI has to answer.

        The parameters of a consumer are still quoted: its names may contain a slash.
        """
        path: str = scope["path"]
        if path.startswith("/consumers/"):
            path = (scope.get("raw_path") or path.encode()).decode("latin-1")
        parts = path.split("/")
        for route, literals, parameters in self._by_shape.get((method, len(parts)), ()):
            for at, literal in literals:
                if parts[at] != literal:
                    break
            else:
                return route, parts[parameters]
        return None


def hot_routes(
    produce: ProduceRoute, fetch: FetchRoute, consumers: ConsumerRoutes, health: HealthRoutes
) -> tuple[Route, ...]:
    return (
        *_record_routes(produce, fetch),
        *_consumer_routes(consumers),
        *_health_routes(health),
    )


def _record_routes(produce: ProduceRoute, fetch: FetchRoute) -> tuple[Route, ...]:
    topic = "/topics/{topic}"
    partition = topic + "/partitions/{partition}"
    return (
        Route(
            "POST",
            topic,
            produce.to_topic,
            operations.PRODUCE_TO_TOPIC,
            "produce_topic",
            is_produce=True,
        ),
        Route(
            "POST",
            partition,
            produce.to_partition,
            operations.PRODUCE_TO_PARTITION,
            "produce_partition",
            is_produce=True,
        ),
        Route("GET", partition + "/records", fetch.records, operations.READ_RECORDS, "records"),
    )


def _consumer_routes(consumers: ConsumerRoutes) -> tuple[Route, ...]:
    group = "/consumers/{group}"
    instance = group + "/instances/{name}"
    actions: tuple[tuple[str, str, Action, Operation], ...] = (
        ("DELETE", "", consumers.delete, operations.END_CONSUMER),
        ("GET", "/subscription", consumers.subscription, operations.SUBSCRIPTION),
        ("POST", "/subscription", consumers.subscribe, operations.SUBSCRIBE),
        ("DELETE", "/subscription", consumers.unsubscribe, operations.UNSUBSCRIBE),
        ("GET", "/assignments", consumers.assignments, operations.ASSIGNMENTS),
        ("POST", "/assignments", consumers.assign, operations.ASSIGN),
        ("GET", "/records", consumers.records, operations.POLL),
        ("GET", "/offsets", consumers.committed, operations.COMMITTED),
        ("POST", "/offsets", consumers.commit, operations.COMMIT),
        ("POST", "/positions", consumers.seek, operations.SEEK),
        ("POST", "/positions/beginning", consumers.seek_to_beginning, operations.SEEK_TO_BEGINNING),
        ("POST", "/positions/end", consumers.seek_to_end, operations.SEEK_TO_END),
    )
    return (
        Route("POST", group, consumers.create, operations.MAKE_CONSUMER, "consumers"),
        *(
            Route(method, instance + path, consumers.of_instance(action), operation, "consumers")
            for method, path, action, operation in actions
        ),
    )


def _health_routes(health: HealthRoutes) -> tuple[Route, ...]:
    named: tuple[tuple[str, Endpoint, Operation | None], ...] = (
        ("/healthz", health.healthz, operations.HEALTHZ),
        ("/readyz", health.readyz, operations.READYZ),
        ("/healthy", health.healthz, None),  # the Strimzi bridge's names
        ("/ready", health.readyz, None),
    )
    return tuple(
        Route("GET", path, endpoint, operation, "admin", is_limited=False)
        for path, endpoint, operation in named
    )
