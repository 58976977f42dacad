"""A hand-written fake of the consumers that a broker keeps over HTTP: one group, one partition."""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.fake_http_broker import TOPIC

Response = Callable[[web.Request], Any]


@dataclass
class Coordinator:
    """One group of one partition, at a broker of its own; `next_polls` come first, once each."""

    records: list[bytes]
    committed: int = 0
    page_records: int = 4
    made: list[dict[str, Any]] = field(default_factory=list)
    ended: int = 0
    requested: list[str] = field(default_factory=list)
    next_polls: list[Response] = field(default_factory=list)
    next_commits: list[Response] = field(default_factory=list)
    _position: int = 0
    _server: TestServer | None = None

    async def next_page(self, request: web.Request) -> web.Response:
        first, self._position = self._position, self._position + self.page_records
        self._position = min(self._position, len(self.records))
        found: list[dict[str, Any]] = [
            {
                "topic": TOPIC,
                "partition": 0,
                "offset": offset,
                "timestamp": 1,
                "key": None,
                "value": base64.b64encode(self.records[offset]).decode(),
                "headers": [],
            }
            for offset in range(first, self._position)
        ]
        return web.json_response(found)

    def seek(self, position: int) -> None:
        """Let the consumer continue there, as if it had skipped what is before."""
        self._position = position

    def app(self) -> web.Application:
        async def make(request: web.Request) -> web.StreamResponse:
            self.made.append(await request.json())
            self._position = self.committed
            base = f"http://{request.host}/consumers/readers/instances/c{len(self.made)}"
            return web.json_response({"instance_id": "c", "base_uri": base})

        async def poll(request: web.Request) -> web.StreamResponse:
            if self.next_polls:
                return await self.next_polls.pop(0)(request)
            return await self.next_page(request)

        async def commit(request: web.Request) -> web.StreamResponse:
            body = await request.json()
            self.requested.append(f"commit {body['offsets'][0]['offset']}")
            if self.next_commits:
                return await self.next_commits.pop(0)(request)
            self.committed = body["offsets"][0]["offset"]
            return web.Response(status=204)

        async def subscribe(request: web.Request) -> web.StreamResponse:
            return web.Response(status=204)

        async def subscription(request: web.Request) -> web.StreamResponse:
            return web.json_response({"topics": [TOPIC], "partitions": [{TOPIC: [0]}]})

        async def end(request: web.Request) -> web.StreamResponse:
            self.ended += 1
            return web.Response(status=204)

        app = web.Application()
        path = "/consumers/readers/instances/{name}"
        app.router.add_post("/consumers/readers", make)
        app.router.add_get(path + "/records", poll)
        app.router.add_post(path + "/offsets", commit)
        app.router.add_post(path + "/subscription", subscribe)
        app.router.add_get(path + "/subscription", subscription)
        app.router.add_delete(path, end)
        return app
