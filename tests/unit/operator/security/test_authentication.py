"""Who may use which route, over HTTP: brokers, people, the peer operator, and everybody else."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request
from tidemark_operator.controller.broker_call import broker_call
from tidemark_operator.controller.http_api import create_app
from tidemark_operator.security.authentication import (
    ByKubernetes,
    OnLoopback,
    address_of,
    authenticated,
)
from tidemark_operator.security.broker_identity import BrokerPods
from tidemark_operator.security.pool_permissions import PoolPermissions
from tidemark_operator.security.rejections import RejectionLog
from tidemark_protocol.access_messages import CONTROLLER_AUDIENCE, REVIEW_TOKEN_PATH
from tidemark_protocol.controller_messages import (
    ALLOCATE_PRODUCER_IDS_PATH,
    REGISTER_PATH,
    AllocateProducerIdsRequest,
    Endpoints,
    encode,
)
from tidemark_protocol.ids import BrokerEpoch, BrokerId

from tests.support.controller_harness import POOL, Harness
from tests.unit.operator.security.api_server import ApiServer, StoredPods, pod, token

PEER = "system:serviceaccount:tidemark-system:tidemark-operator"
JANE = "system:serviceaccount:shop:jane"
EVERYWHERE = (JANE, "", "", "get", "brokerpools")
Client = TestClient[web.Request, web.Application]


class Served:
    def __init__(self, server: ApiServer, pods: BrokerPods, client: Client) -> None:
        self.server = server
        self.pods = pods
        self.client = client

    async def status_of(
        self, method: str, path: str, of: str | None = None, **request: Any
    ) -> tuple[int, str]:
        headers = {} if of is None else {"Authorization": f"Bearer {of}"}
        async with self.client.request(
            method, path, headers={**headers, **request.pop("headers", {})}, **request
        ) as response:
            if response.status not in (401, 403, 503):
                return response.status, ""
            found = await response.json()
            assert found["problems"] == [found["problem"]]
            assert ("WWW-Authenticate" in response.headers) == (response.status == 401)
            return response.status, found["problem"]

    async def allocate(self, of: str | None, pool: str = POOL, broker_id: int = 1) -> int:
        request = AllocateProducerIdsRequest(pool, BrokerId(broker_id), BrokerEpoch(2))
        status, _ = await self.status_of(
            "POST", ALLOCATE_PRODUCER_IDS_PATH, of, data=encode(request)
        )
        return status


def run(
    scenario: Callable[[Served], Awaitable[None]],
    *,
    accepts_old_brokers: bool = False,
    metrics_need_token: bool = False,
    on_loopback: bool = False,
) -> None:
    async def served() -> None:
        harness = await Harness().start(3)
        server = ApiServer()
        for number in range(3):
            of = token(f"broker-{number}")
            server.account("default", of, pod=(f"default-{number}", f"uid-{number}"))
        server.account("default", token("load"), pod=("load", "uid-9"))
        server.account("jane", token("jane"))
        server.account("tidemark-operator", token("peer"), namespace="tidemark-system")
        pods = BrokerPods(StoredPods(*(pod(number, f"uid-{number}") for number in range(3))).read)
        by_kubernetes = ByKubernetes(
            server.token_reviews(),
            PoolPermissions(server.review_access, monotonic_s=server.clock.monotonic_s),
            pods,
            peer=PEER,
            accepts_old_brokers=accepts_old_brokers,
            metrics_need_token=metrics_need_token,
        )
        authentication = OnLoopback() if on_loopback else by_kubernetes
        app = create_app(
            harness.service, middlewares=[authenticated(authentication, RejectionLog(lambda: 0.0))]
        )

        async def page(_: web.Request) -> web.Response:
            return web.Response()

        app.router.add_get("/v1/isr", page)
        app.router.add_get("/v1/pools", page)
        app.router.add_get("/v1/forgotten", page)
        app.router.add_post("/v1/actions/drain", page)
        async with TestClient(TestServer(app)) as client:
            await scenario(Served(server, pods, client))

    asyncio.run(asyncio.wait_for(served(), 20))


def test_a_broker_speaks_for_itself_only() -> None:
    async def scenario(rig: Served) -> None:
        assert await rig.allocate(token("broker-1")) == 200
        assert await rig.allocate(token("broker-2")) == 403
        assert await rig.allocate(token("broker-1"), pool="bank/default") == 403
        assert await rig.allocate(token("broker-1"), broker_id=0) == 403

    run(scenario)


def test_others_are_no_brokers() -> None:
    async def scenario(rig: Served) -> None:
        assert await rig.allocate(None) == 401
        assert await rig.allocate(token("load")) == 403  # the brokers' own ServiceAccount
        assert await rig.allocate(token("jane")) == 403
        assert await rig.allocate(token("peer")) == 403
        assert await rig.allocate(token("expired or of another cluster")) == 401
        assert await rig.allocate(token("broker-1", audience="kafka")) == 401
        assert await rig.allocate("x" * 5000) == 401

    run(scenario)


def test_a_body_is_not_read_before_its_sender_is_known() -> None:
    async def scenario(rig: Served) -> None:
        async def body() -> Any:
            yield b"{"
            await asyncio.Event().wait()

        status, said = await rig.status_of("POST", REGISTER_PATH, data=body())
        assert (status, "send the token of the broker's pod" in said) == (401, True)

    run(scenario)


@pytest.mark.parametrize(
    "headers",
    [
        [("Authorization", "Basic amFuZTpz")],
        [("Authorization", "Bearer")],
        [("Authorization", "Bearer "), ("Authorization", f"Bearer {token('broker-1')}")],
        [("Authorization", f"Bearer {token('broker-1')}")] * 2,
    ],
)
def test_one_bearer_token_is_expected(headers: list[tuple[str, str]]) -> None:
    async def scenario(rig: Served) -> None:
        async with rig.client.post(REGISTER_PATH, headers=headers) as response:
            assert response.status == 401

    run(scenario)


def test_the_api_server_away_rejects_who_is_not_known() -> None:
    async def scenario(rig: Served) -> None:
        assert await rig.allocate(token("broker-1")) == 200
        rig.server.is_away = True
        assert await rig.allocate(token("broker-1")) == 200
        assert await rig.allocate(token("broker-2"), broker_id=2) == 503

    run(scenario)


def test_people_need_a_permission_for_what_they_read() -> None:
    async def scenario(rig: Served) -> None:
        status, said = await rig.status_of("GET", "/v1/status")
        assert (status, "kubectl port-forward" in said) == (401, True)
        status, said = await rig.status_of("GET", "/v1/status", token("jane"))
        assert status == 403
        assert said == (
            f"{JANE} needs the permission `get` on brokerpools.tidemark.dev in all namespaces"
        )
        assert (await rig.status_of("GET", "/v1/status", token("broker-1")))[0] == 403
        rig.server.permissions.add(EVERYWHERE)
        rig.server.clock.now_s += 30
        for path in ("/v1/status", "/v1/pools", "/v1/events", "/v1/isr"):
            assert (await rig.status_of("GET", path, token("jane")))[0] == 200

    run(scenario)


def test_a_permission_for_one_pool_is_one_for_its_pages_only() -> None:
    async def scenario(rig: Served) -> None:
        rig.server.permissions.add((JANE, "shop", "default", "get", "brokerpools"))
        jane = token("jane")
        assert (await rig.status_of("GET", f"/v1/events?pool={POOL}", jane))[0] == 200
        for path in (
            "/v1/events",
            "/v1/events?pool=bank/default",
            f"/v1/events?pool=bank/default&pool={POOL}",
            f"/v1/status?pool={POOL}",
            f"/v1/pools?pool={POOL}",
        ):
            assert (await rig.status_of("GET", path, jane))[0] == 403, path

    run(scenario)


def test_who_may_only_read_may_not_act_on_the_live_page() -> None:
    async def scenario(rig: Served) -> None:
        rig.server.permissions.add(EVERYWHERE)
        status, said = await rig.status_of("POST", "/v1/actions/drain", token("jane"))
        assert (status, "`alter` on brokerpools" in said) == (403, True)
        rig.server.permissions.add((JANE, "", "", "alter", "brokerpools"))
        rig.server.clock.now_s += 30
        assert (await rig.status_of("POST", "/v1/actions/drain", token("jane")))[0] == 200

    run(scenario)


def test_the_peer_operator_forwards_pages_and_nothing_else() -> None:
    async def scenario(rig: Served) -> None:
        assert (await rig.status_of("GET", "/v1/isr", token("peer")))[0] == 200
        assert (await rig.status_of("GET", "/v1/status", token("peer")))[0] == 403

    run(scenario)


def test_probes_and_metrics_are_open_and_metrics_can_be_closed() -> None:
    async def scenario(rig: Served) -> None:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await rig.status_of("GET", path))[0] == 200

    run(scenario)

    async def closed(rig: Served) -> None:
        assert (await rig.status_of("GET", "/healthz"))[0] == 200
        assert (await rig.status_of("GET", "/metrics"))[0] == 401
        rig.server.permissions.add(EVERYWHERE)
        assert (await rig.status_of("GET", "/metrics", token("jane")))[0] == 200

    run(closed, metrics_need_token=True)


def test_a_route_without_an_owner_is_closed_and_no_route_is_not_found() -> None:
    async def scenario(rig: Served) -> None:
        rig.server.permissions.add(EVERYWHERE)
        assert (await rig.status_of("GET", "/v1/forgotten", token("jane")))[0] == 403
        assert (await rig.status_of("POST", REVIEW_TOKEN_PATH))[0] == 404
        assert (await rig.status_of("GET", REGISTER_PATH))[0] == 405

    run(scenario)


def test_old_brokers_are_known_by_the_address_of_their_pod() -> None:
    async def scenario(rig: Served) -> None:
        assert await rig.allocate(None) == 401
        rig.pods.on_pod(pod(1, "uid-1", address="127.0.0.1"))
        assert await rig.allocate(None) == 200
        assert await rig.allocate(None, broker_id=2) == 403
        assert (await rig.status_of("GET", "/v1/status"))[0] == 401
        assert await rig.allocate(token("broker-1")) == 200
        assert await rig.allocate(None) == 401  # it has a token

    run(scenario, accepts_old_brokers=True)

    async def closed(rig: Served) -> None:
        rig.pods.on_pod(pod(1, "uid-1", address="127.0.0.1"))
        assert await rig.allocate(None) == 401

    run(closed)


def test_the_port_on_loopback_is_for_people_by_an_address_and_for_no_broker() -> None:
    async def scenario(rig: Served) -> None:
        assert (await rig.status_of("GET", "/v1/status"))[0] == 200
        for host in ("localhost:1", "127.0.0.1", "[::1]:9", "[::1]"):
            assert (await rig.status_of("GET", "/v1/status", headers={"Host": host}))[0] == 200
        for host in ("evil.example:8081", "127.0.0.1.evil.example", "localhost.evil", ""):
            assert (await rig.status_of("GET", "/v1/status", headers={"Host": host}))[0] == 403
        assert await rig.allocate(None) == 403
        assert await rig.allocate(token("broker-1")) == 403

    run(scenario, on_loopback=True)


def test_rejections_are_logged_with_the_sender_and_without_tokens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario(rig: Served) -> None:
        await rig.allocate(token("broker-2"))
        await rig.allocate(token("load"))
        await rig.allocate(token("invalid"))
        lines = [vars(line) for line in caplog.records if line.message == "request rejected"]
        assert [(line["reason"], line["principal"]) for line in lines] == [
            ("OtherBroker", "shop/default-2"),
            ("NotABroker", "system:serviceaccount:shop:default in pod load"),
            ("InvalidToken", ""),
        ]
        assert {line["address"] for line in lines} == {"127.0.0.1"}
        written = repr([vars(line) for line in caplog.records])
        assert not any(token(name) in written for name in ("broker-2", "load", "invalid"))

    run(scenario)


def test_an_ipv4_address_on_a_socket_of_both_families_is_as_the_pod_has_it() -> None:
    class Transport:
        def __init__(self, host: str) -> None:
            self.host = host

        def get_extra_info(self, name: str, default: object = None) -> object:
            return (self.host, 1) if name == "peername" else default

    def address(host: str) -> str:
        return address_of(make_mocked_request("GET", "/", transport=Transport(host)))

    assert address("::ffff:10.0.0.1") == "10.0.0.1"
    assert (address("10.0.0.1"), address("fd00::1")) == ("10.0.0.1", "fd00::1")


def test_a_request_that_names_no_broker_can_be_no_call() -> None:
    async def answer(_: Endpoints) -> None:
        raise AssertionError("not called")

    with pytest.raises(TypeError, match="names its broker"):
        broker_call(Endpoints, answer)


def test_the_audience_is_the_controllers() -> None:
    async def scenario(rig: Served) -> None:
        sent: list[Any] = []
        review = rig.server.review_token

        async def recorded(spec: Any) -> Any:
            sent.append(spec["audiences"])
            return await review(spec)

        reviews = rig.server.token_reviews()
        reviews._send = recorded
        await reviews.review(token("broker-1"), CONTROLLER_AUDIENCE, source="")
        assert sent == [[CONTROLLER_AUDIENCE]]

    run(scenario)
