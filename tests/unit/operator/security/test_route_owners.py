"""Each route of the operator's servers has an owner, and the table names no other route."""

from pathlib import Path
from typing import Any, cast

from aiohttp import web
from tidemark_operator.controller.http_api import create_app
from tidemark_operator.controller.service import ControllerService
from tidemark_operator.manager.health import create_health_app, create_people_app
from tidemark_operator.manager.local.api import add_local_routes
from tidemark_operator.manager.web.actions import add_action_routes
from tidemark_operator.manager.web.routes import add_web_routes
from tidemark_operator.security.route_owners import (
    NAMES_POOL,
    ROUTE_OWNERS,
    Owner,
    is_action,
    names_pool,
    owners_of,
)
from tidemark_operator.topic_admin.service import topic_calls
from tidemark_protocol import access_messages

SERVICE = cast(ControllerService, None)  # routes are only listed
# Brokers will ask for these; they are closed to others from the first day.
TO_COME = {
    ("POST", getattr(access_messages, name))
    for name in dir(access_messages)
    if name.endswith("_PATH")
}


class Methods:
    """Stands for a service of which routes take methods."""

    def __getattr__(self, name: str) -> Any:
        return name


UNSERVED: Any = Methods()


def routes_of(*apps: web.Application) -> set[tuple[str, str]]:
    found = set()
    for app in apps:
        for route in app.router.routes():
            assert route.resource is not None
            found.add((route.method, route.resource.canonical))
    return {(method, path) for method, path in found if method != "HEAD"}


def all_routes() -> set[tuple[str, str]]:
    service = cast(ControllerService, Methods())
    network = create_app(service, more_calls=topic_calls(cast(Any, Methods())))
    health = create_health_app(service, middlewares=[])
    people = create_people_app(service, middlewares=[])
    for app in (network, health, people):
        add_web_routes(app, service, UNSERVED)
        add_action_routes(app, service, UNSERVED, UNSERVED)
    add_local_routes(network, UNSERVED, secret_file=Path("secret"))
    return routes_of(network, health, people)


def test_every_route_has_an_owner() -> None:
    without = {route for route in all_routes() if not owners_of(*route)}
    assert not without, f"name their owners in route_owners.py: {without}"


def test_every_owner_has_a_route() -> None:
    assert ROUTE_OWNERS.keys() - all_routes() - TO_COME == set()


def test_what_changes_something_is_for_brokers_or_people_only() -> None:
    for (method, path), owners in ROUTE_OWNERS.items():
        if method != "GET":
            # A standby forwards what people do on its page.
            people = {Owner.PEOPLE, Owner.PEER_OPERATOR} if is_action(path) else {Owner.PEOPLE}
            assert owners in ({Owner.BROKERS}, people), path


def test_what_is_open_to_everyone_shows_no_data() -> None:
    open_paths = {path for (_, path), owners in ROUTE_OWNERS.items() if Owner.EVERYONE in owners}
    assert open_paths == {"/healthz", "/readyz", "/", "/ui", "/ui/{name}"}


def test_an_unknown_route_has_no_owner_and_head_is_as_get() -> None:
    assert not owners_of("GET", "/v1/new")
    assert not owners_of("PUT", "/v1/status")
    assert owners_of("HEAD", "/v1/status") == owners_of("GET", "/v1/status")


def test_only_routes_that_obey_the_pool_of_the_query_count_it() -> None:
    assert not any(map(names_pool, ("/v1/status", "/v1/pools", "/metrics", "/v1/local")))
    assert {path for _, path in ROUTE_OWNERS} >= NAMES_POOL
