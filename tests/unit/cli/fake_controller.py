"""The controller of local mode as commands see it: a status, and objects that a test sets."""

import asyncio
import copy
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from rich.console import Console
from tidemark_cli.arguments import parse
from tidemark_cli.output import Output
from tidemark_client.errors import CommandFailed


def partition(number: int, leader: int, *replicas: int, epoch: int = 1) -> dict[str, Any]:
    return {
        "partition": number,
        "leader": leader,
        "leaderEpoch": epoch,
        "partitionEpoch": epoch,
        "replicas": list(replicas),
        "isr": [{"id": each} for each in replicas],
        "minIsr": 1,
    }


def topic_object(name: str, ready: str = "", **spec: Any) -> dict[str, Any]:
    """`ready`: "" for True, else `Reason: message`."""
    reason, _, message = ready.partition(": ")
    condition = {
        "type": "Ready",
        "status": "False" if ready else "True",
        "reason": reason or "AllPartitionsLed",
        "message": message,
    }
    return {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": name, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"partitions": 1, "replicationFactor": 1, "brokerPool": "default"} | spec,
        "status": {"observedGeneration": 1, "conditions": [condition]},
    }


def pool_object(name: str = "default", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "BrokerPool",
        "metadata": {"name": name, "generation": 1},
        "spec": {"replicas": 3} | spec,
    }


@dataclass
class FakeController:
    states: dict[str, list[str]] = field(default_factory=lambda: {"default": ["Active"] * 3})
    topics: list[dict[str, Any]] = field(default_factory=list)  # of /v1/status, with `pool`
    objects: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {"topics": [], "brokerpools": [pool_object()]}
    )
    on_status: Callable[["FakeController"], None] = lambda _: None
    on_patch: Callable[[dict[str, Any], Any], None] = lambda item, patch: None
    patches: list[tuple[str, Any]] = field(default_factory=list)
    store_failure: str = ""  # of each object that is to be made
    url: str = ""
    uptime_ms: int = 3_600_000
    events: list[dict[str, Any]] = field(default_factory=list)
    why: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Any] | None = None
    is_standby: bool = False
    queries: list[dict[str, str]] = field(default_factory=list)  # of /v1/events and /v1/why

    def topic(self, name: str, *partitions: Any, pool: str = "default", **fields: Any) -> None:
        reported = {"topic": name, "objectName": name, "partitions": list(partitions)} | fields
        self.topics.append(reported | {"pool": pool})

    def status(self) -> dict[str, Any]:
        self.on_status(self)
        return {
            "leads": True,
            "pools": [
                {
                    "pool": f"default/{pool}",
                    "brokers": [
                        {
                            "brokerId": number,
                            "brokerEpoch": 1,
                            "state": state,
                            "rack": f"rack-{number}",
                            "advertisedHttpUrl": f"{self.url}/{pool}/{number}",
                        }
                        for number, state in enumerate(states)
                    ],
                    "topics": [each for each in self.topics if each["pool"] == pool],
                }
                for pool, states in self.states.items()
            ],
        }

    def app(self) -> web.Application:
        app = web.Application()

        async def status(_: web.Request) -> web.Response:
            return _json(200, self.status())

        async def local(_: web.Request) -> web.Response:
            return _json(200, {"uptimeMs": self.uptime_ms})

        async def brokers(request: web.Request) -> web.Response:
            return _json(200, {"pool": request.match_info["pool"], "brokers": []})

        async def topics_of_pool(request: web.Request) -> web.Response:
            pool = request.match_info["pool"]
            found = [each["topic"] for each in self.topics if each["pool"] == pool]
            return _json(200, {"topics": found})

        async def listing(request: web.Request) -> web.Response:
            return _json(200, {"items": self.objects[request.match_info["plural"]]})

        async def create(request: web.Request) -> web.Response:
            if self.store_failure:
                return _json(503, {"problems": [self.store_failure]})
            made = msgspec.json.decode(await request.read())
            made["metadata"]["generation"] = 1
            self.objects[request.match_info["plural"]].append(made)
            return _json(200, made)

        async def one(request: web.Request) -> web.Response:
            name = request.match_info["name"]
            every = self.objects[request.match_info["plural"]]
            found = next((each for each in every if each["metadata"]["name"] == name), None)
            if found is None:
                return _json(404, {"problems": [f"no {name}"]})
            if request.method == "PATCH":
                self.patches.append((name, msgspec.json.decode(await request.read())))
                self.on_patch(found, self.patches[-1][1])
            return _json(200, copy.deepcopy(found))

        app.router.add_get("/v1/status", status)

        self._add_event_routes(app)
        app.router.add_get("/v1/local", local)
        app.router.add_get("/{pool}/{broker}/brokers", brokers)
        app.router.add_get("/{pool}/{broker}/topics", topics_of_pool)
        app.router.add_get("/v1/{plural}", listing)
        app.router.add_post("/v1/{plural}", create)
        app.router.add_route("*", "/v1/{plural}/{name}", one)
        return app

    def _add_event_routes(self, app: web.Application) -> None:
        async def events(request: web.Request) -> web.Response:
            self.queries.append(dict(request.query))
            after, limit = int(request.query["after"]), int(request.query["limit"])
            found = [each for each in self.events if each["number"] > after][:limit]
            return _json(200, {"term": 1, "newest": len(self.events), "events": found})

        async def figures(request: web.Request) -> web.Response:
            if self.figures is None:
                raise web.HTTPNotFound  # of an earlier version
            return _json(200, self.figures)

        async def why(request: web.Request) -> web.Response:
            self.queries.append(dict(request.query))
            if self.is_standby:
                return _json(503, {"problems": ["this operator is on standby: ask x:8070"]})
            if not self.why:
                return _json(404, {"problems": ["partition orders-9 not found: expected 0 to 2"]})
            return _json(200, self.why)

        app.router.add_get("/v1/events", events)
        app.router.add_get("/v1/why", why)
        app.router.add_get("/v1/isr/figures", figures)


def _json(status: int, body: Any) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(body), content_type="application/json"
    )


@dataclass(frozen=True)
class Said:
    code: int
    out: str


def run_command(controller: FakeController, *words: str, is_json: bool = False) -> Said:
    """`tidemark WORDS --server CONTROLLER` in this process. Raises CommandFailed."""

    async def ran() -> Said:
        from tidemark_cli.arguments import _module_of

        async with TestServer(controller.app()) as server:
            controller.url = f"http://{server.host}:{server.port}"
            arguments = parse([*words, "--server", controller.url])
            text = io.StringIO()
            console = Console(file=text, highlight=False, soft_wrap=True)
            code = await _module_of(arguments.command).run(
                arguments, Output(is_json=is_json, console=console)
            )
            return Said(int(code), text.getvalue())

    return asyncio.run(asyncio.wait_for(ran(), 10))


def rejection(controller: FakeController, *words: str) -> CommandFailed:
    with pytest.raises(CommandFailed) as failed:
        run_command(controller, *words)
    return failed.value
