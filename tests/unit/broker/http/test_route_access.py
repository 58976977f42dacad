"""What HTTP clients with names may do: each route has a row, and a denial names the Role."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.routing import APIRoute
from starlette.routing import Route
from tidemark_broker.http.route_access import ROUTE_ACCESS
from tidemark_operator.security.local_roles import parse_roles

from tests.support.access import ALICE, Reviews
from tests.unit.broker.http.fake_broker import FakeBroker, Response, fake_broker

RECORDS = {"records": [{"value": "dg=="}]}
ON_ORDERS = "{{resources: [topics], resourceNames: [orders], verbs: [{verb}]}}"
ON_GROUP = "{{resources: [consumergroups], resourceNames: [g], verbs: [{verb}]}}"
ON_POOL = "{{resources: [brokerpools], verbs: [{verb}]}}"


def on(rule: str, verb: str) -> str:
    return rule.format(verb=verb)


def asked(
    method: str, path: str, *rules: str, body: Any = None, broker: FakeBroker | None = None
) -> Response:
    async def run() -> Response:
        reviews = Reviews()
        reviews.grant(*rules)
        used = broker or fake_broker(authorizer=reviews.authorizer())
        used.client.principal = ALICE
        if method == "POST":
            return await used.client.post(path, body)
        response = await used.client.request(method, path)
        assert response is not None
        return response

    return asyncio.run(run())


def test_every_route_has_a_row() -> None:
    async def served() -> set[tuple[str, str]]:
        app = fake_broker().client.app
        api = await app.load_api()
        found = {(route.method, route.template) for route in app._table.routes}
        for route in api.routes:
            assert isinstance(route, Route | APIRoute)
            found |= {(method, route.path) for method in route.methods - {"HEAD"}}
        return found

    assert asyncio.run(served()) == set(ROUTE_ACCESS)


@pytest.mark.parametrize(
    ("method", "path", "body", "rule"),
    [
        ("POST", "/topics/orders", RECORDS, on(ON_ORDERS, "produce")),
        ("POST", "/topics/orders/partitions/0", RECORDS, on(ON_ORDERS, "produce")),
        ("GET", "/topics/orders/partitions/0/records", None, on(ON_ORDERS, "consume")),
        ("GET", "/topics/orders", None, on(ON_ORDERS, "describe")),
        ("GET", "/topics/orders/partitions", None, on(ON_ORDERS, "describe")),
        ("GET", "/topics/orders/partitions/0", None, on(ON_ORDERS, "describe")),
        ("GET", "/topics/orders/partitions/0/offsets", None, on(ON_ORDERS, "describe")),
        ("GET", "/topics/orders/partitions/0/replica", None, on(ON_ORDERS, "describe")),
        ("GET", "/groups", None, on(ON_POOL, "describe")),
        ("HEAD", "/topics/orders", None, on(ON_ORDERS, "describe")),
    ],
)
def test_a_route_is_denied_without_its_access_and_served_with_it(
    method: str, path: str, body: Any, rule: str
) -> None:
    denied = asked(method, path, body=body)
    assert denied.status == 403
    assert asked(method, path, rule, body=body).status not in (403, 500)


def test_a_denial_names_the_verb_the_resource_and_the_role() -> None:
    denied = asked("POST", "/topics/orders", body=RECORDS).json()
    assert denied["error"] == "TOPIC_AUTHORIZATION_FAILED"
    assert denied["outcome"] == "not_written"
    assert (denied["verb"], denied["resource"]) == ("produce", "topics.tidemark.dev/orders")
    role = yaml.safe_load(denied["role"])
    assert role["kind"] == "Role" and role["metadata"]["namespace"] == "local"
    assert role["rules"][0]["resourceNames"] == ["orders"]
    assert "alice may not produce" in denied["detail"]
    parse_roles(yaml.safe_dump({"users": {"alice": role["rules"]}}))


def test_topics_are_listed_by_what_may_be_described() -> None:
    assert asked("GET", "/topics").json() == {"topics": []}
    assert asked("GET", "/topics", on(ON_ORDERS, "describe")).json() == {"topics": ["orders"]}


def test_health_and_pages_need_no_access() -> None:
    for path in ("/healthz", "/readyz", "/", "/openapi.json"):
        assert asked("GET", path).status == 200


def test_a_path_that_has_no_route_is_denied() -> None:
    assert asked("GET", "/topics/orders/partitions/0/replica/more").status == 403
    assert asked("GET", "/nothing").status == 403


def test_a_consumer_reads_only_topics_that_its_client_may_consume() -> None:
    assert asked("POST", "/consumers/g", body={}).status == 403
    assert asked("GET", "/consumers/g/instances/c/records").status == 403
    found = asked("GET", "/consumers/g/instances/c/records", on(ON_GROUP, "consume"))
    assert found.status == 404  # there is no such consumer


def test_a_name_is_compared_unquoted(tmp_path: Path) -> None:
    rule = '{resources: [consumergroups], resourceNames: ["a/b"], verbs: [consume]}'
    assert asked("GET", "/consumers/a%2Fb/instances/c/records", rule).status in (403, 404)
