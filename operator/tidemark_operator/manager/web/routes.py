"""Serve the live page: its files, snapshots of a pool, and a stream of its changes.

`GET /ui/` is the page; what it reads:

- `/v1/pools`: the pools; `/v1/isr?pool=`: one pool as a JSON document, in the parts of a snapshot
- `/v1/isr/stream?pool=&version=`: server-sent events. `begin`, `part`s and `end` make a snapshot,
  then each `change` has a version. A page that comes back with a version (or Last-Event-ID) gets
  `resumed` and the changes after it, or a new snapshot. `beat` comes each second
- `/v1/isr/events?pool=&after=`: earlier events; `/v1/isr/why?pool=&topic=&partition=`: answers
- `/v1/isr/topic?pool=&topic=&first=`, `/v1/isr/groups?pool=&topic=`: offsets of replicas, and
  consumer groups, both read from brokers

An operator on standby forwards these requests to the leader. Nothing here changes anything.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from aiohttp import web
from tidemark_protocol.controller_messages import encode

from tidemark_operator.controller.service import ControllerService, NotController
from tidemark_operator.manager.web.broker_reads import BrokerReads, TooManyReads
from tidemark_operator.manager.web.documents import why_document
from tidemark_operator.manager.web.live_pools import LivePool, LivePools, TooManyPages, UnknownPool
from tidemark_operator.manager.web.page_stream import PageStream
from tidemark_operator.manager.web.static_files import SAFE_HEADERS, read_static_files

PAGE_PATH = "/ui/"
RECONNECT_MS = 500
EVENTS_PER_ANSWER = 1000
MAX_DIGITS = 15
WRITE_SECONDS = 10.0  # a page that takes nothing for so long is gone

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Forward = Callable[[web.Request], Awaitable[web.StreamResponse]]


def add_web_routes(
    app: web.Application,
    service: ControllerService,
    live_pools: LivePools,
    *,
    forward: Forward | None = None,
    authorization: Callable[[], Mapping[str, str]] = dict,
) -> None:
    """Add them; `forward` answers instead while this controller is on standby.

    `authorization` returns the header of requests to brokers, where clients authenticate.
    """
    routes = WebRoutes(service, live_pools, forward, authorization)
    app.router.add_get("/", routes.to_page)
    app.router.add_get("/ui", routes.to_page)
    app.router.add_get(PAGE_PATH + "{name:[a-z_.]*}", routes.static_file)
    app.router.add_get("/v1/pools", routes.answer(routes.pools))
    app.router.add_get("/v1/isr", routes.answer(routes.snapshot))
    app.router.add_get("/v1/isr/events", routes.answer(routes.events))
    app.router.add_get("/v1/isr/topic", routes.answer(routes.topic))
    app.router.add_get("/v1/isr/why", routes.answer(routes.why))
    app.router.add_get("/v1/isr/groups", routes.answer(routes.groups))
    app.on_cleanup.append(routes.close)
    app.router.add_get("/v1/isr/stream", routes.answer(routes.stream))


class WebRoutes:
    def __init__(
        self,
        service: ControllerService,
        live_pools: LivePools,
        forward: Forward | None,
        authorization: Callable[[], Mapping[str, str]],
    ) -> None:
        self._service = service
        self._live_pools = live_pools
        self._forward = forward
        self._files = read_static_files()
        self._reads = BrokerReads(authorization)

    async def close(self, _: web.Application) -> None:
        await self._reads.close()

    async def to_page(self, _: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": PAGE_PATH})

    async def static_file(self, request: web.Request) -> web.StreamResponse:
        found = self._files.get(request.match_info["name"] or "index.html")
        if found is None:
            return problem(404, f"{request.path}: no such file")
        return found.response(request)

    def answer(self, handler: Handler) -> Handler:
        """Return a handler that forwards while on standby, and says in a sentence what is wrong."""

        async def answered(request: web.Request) -> web.StreamResponse:
            if not self._service.is_leading and self._forward is not None:
                return await self._forward(request)
            try:
                return await handler(request)
            except NotController:
                leader = self._service.leader_address
                return problem(503, f"this operator is on standby: {leader_sentence(leader)}")
            except UnknownPool as error:
                return problem(404, str(error))
            except (TooManyPages, TooManyReads) as error:
                return problem(503, str(error))

        return answered

    async def pools(self, _: web.Request) -> web.StreamResponse:
        if not self._service.is_leading:
            raise NotController("on standby")
        return _json(
            {"pools": self._service.pools(), "controllerEpoch": self._service.controller_epoch}
        )

    async def snapshot(self, request: web.Request) -> web.StreamResponse:
        parts = (await self._live_pools.open(_pool(request))).feed.snapshot()
        response = web.StreamResponse(headers={**SAFE_HEADERS, "Content-Type": "application/json"})
        await response.prepare(request)
        await _write(response, b'{"parts":[')
        separator = b""
        for part in parts:
            await _write(response, separator + part)
            separator = b","
            await asyncio.sleep(0)
        await _write(response, b"]}")
        return response

    async def events(self, request: web.Request) -> web.StreamResponse:
        live = await self._live_pools.open(_pool(request))
        after = request.query.get("after", "0")
        if not is_number(after):
            return problem(400, f"after: expected a number, found {after[:80]!r}")
        return _json({"events": await live.events(int(after), EVENTS_PER_ANSWER)})

    async def topic(self, request: web.Request) -> web.StreamResponse:
        """Answer offsets of a topic's replicas, read from the brokers for some partitions."""
        live = await self._live_pools.open(_pool(request))
        pool, name = live.feed.pool, request.query.get("topic", "")
        view = live.feed.topic_view(name)
        first = request.query.get("first", "0")
        if view is None:
            return problem(404, f"topic {name[:249]}: not found in pool {pool}")
        if not is_number(first):
            return problem(400, f"first: expected a number, found {first[:80]!r}")
        brokers = live.feed.broker_views()
        found = await self._reads.replicas(pool, view, brokers, int(first))
        return _json({"partitions": found})

    async def why(self, request: web.Request) -> web.StreamResponse:
        """Answer why a partition is as it is now."""
        pool, topic = _pool(request), request.query.get("topic", "")
        number = request.query.get("partition", "0")
        pool = (await self._live_pools.open(pool)).feed.pool
        found = None
        if is_number(number):
            found = self._service.explanation(pool, topic, int(number))
        if found is None:
            return problem(404, f"partition {topic[:249]}-{number[:80]}: not found in pool {pool}")
        return _json({"answers": [why_document(answer) for answer in found.answers]})

    async def groups(self, request: web.Request) -> web.StreamResponse:
        """Answer the pool's consumer groups, with what they committed of one topic or of all."""
        feed = (await self._live_pools.open(_pool(request))).feed
        pool = feed.pool
        topic = request.query.get("topic", "")[:249]
        brokers = feed.broker_views()
        return _json({"groups": await self._reads.groups(pool, feed.topic_view, brokers, topic)})

    async def stream(self, request: web.Request) -> web.StreamResponse:
        live, page = await self._live_pools.open_page(_pool(request))
        try:
            return await self._send(request, live, page)
        except (TimeoutError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()  # what it did not read is not kept for it
            return web.Response()
        finally:
            self._live_pools.close_page(live, page)

    async def _send(
        self, request: web.Request, live: LivePool, page: PageStream
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={
                **SAFE_HEADERS,
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
            }
        )
        await response.prepare(request)
        await _write(response, b"retry: %d\n\n" % RECONNECT_MS)
        version = request.headers.get("Last-Event-ID") or request.query.get("version", "")
        for_now: AsyncIterator[bytes] = live.begin(page, version)
        async for body in for_now:
            await _write(response, body)
        async for body in page.messages():
            await _write(response, body)
        return response


async def _write(response: web.StreamResponse, body: bytes) -> None:
    async with asyncio.timeout(WRITE_SECONDS):
        await response.write(body)


def is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS


def leader_sentence(address: str) -> str:
    return f"{address} leads" if address else "no operator leads yet, try again in a few seconds"


def problem(status: int, sentence: str) -> web.Response:
    return web.Response(
        status=status,
        body=encode({"problem": sentence}),
        content_type="application/json",
        headers={**SAFE_HEADERS, "Cache-Control": "no-store"},
    )


def _pool(request: web.Request) -> str:
    return request.query.get("pool", "")[:400]


def _json(value: object) -> web.Response:
    return web.Response(
        body=encode(value),
        content_type="application/json",
        headers={**SAFE_HEADERS, "Cache-Control": "no-store"},
    )
