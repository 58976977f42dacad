"""Serve the page's actions: elect the preferred leader, drain a broker, kill a broker.

They are off by default, and then their routes do not exist. `POST /v1/actions/{elect,drain,kill}`
takes `{"pool", "topic", "partition"}` or `{"pool", "broker"}` and answers `{"done": sentence}` or
`{"problem": sentence}`. Each is in the pool's event log before it is done.

The page has no password, so another site in the same browser must not be able to ask: a request
needs the header X-Tidemark-Action, which a browser sends to another origin only after a permission
that is never given here; an Origin has to be this server; and the host has to be an address or
localhost, because a name may be another site's that points here (DNS rebinding).
"""

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol
from urllib.parse import urlsplit

import msgspec
from aiohttp import web
from tidemark_protocol.audit_line import PERFORMED, AuditLine
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.kinds import BROKER_POOL, Object
from tidemark_operator.api.partition_slice import split_pool
from tidemark_operator.controller.core.timeline import ActionRequested, PageAction
from tidemark_operator.controller.service import ControllerService, NotController
from tidemark_operator.manager.web.routes import (
    Forward,
    Handler,
    leader_sentence,
    problem,
    safe_json,
)
from tidemark_operator.store.object_store import Conflict, ObjectStore, StoreError

log = logging.getLogger(__name__)

ACTION_HEADER = "X-Tidemark-Action"
MAX_BODY_BYTES = 4096
MAX_TRIES = 5
BODY_SECONDS = 5.0


class BrokerKiller(Protocol):
    async def kill(self, pool: str, broker_id: BrokerId) -> bool:
        """Kill the broker's process or delete its pod; return whether there is one."""
        ...


class Request(msgspec.Struct):
    pool: str
    topic: str = ""
    partition: int = -1
    broker: int = -1


class ActionRejected(Exception):
    """An error: the action is not done; the text is for the person who asked for it."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def add_action_routes(
    app: web.Application,
    service: ControllerService,
    store: ObjectStore,
    killer: BrokerKiller,
    *,
    forward: Forward | None = None,
) -> None:
    """Add them; `forward` answers instead while this controller is on standby."""
    actions = Actions(service, store, killer)
    for action, act in (
        (PageAction.ELECT, actions.elect),
        (PageAction.DRAIN, actions.drain),
        (PageAction.KILL, actions.kill),
    ):
        app.router.add_post(f"/v1/actions/{action.value}", _answering(service, act, forward))


Act = Callable[[Request, str], Awaitable[str]]


def _answering(service: ControllerService, act: Act, forward: Forward | None) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        why = rejection_of(request)
        if why:
            return problem(403, why)
        if request.content_length is None or request.content_length > MAX_BODY_BYTES:
            return problem(413, f"expected a body with its length, at most {MAX_BODY_BYTES} bytes")
        if not service.is_leading and forward is not None:
            return await forward(request)
        try:
            done = await act(await _read(request), request.remote or "an unknown address")
        except ActionRejected as error:
            return problem(error.status, str(error))
        except NotController:
            leader = leader_sentence(service.leader_address)
            return problem(503, f"this operator is on standby: {leader}")
        except StoreError as error:
            return problem(503, f"the store rejected it: {error}")
        return safe_json({"done": done})

    return answer


def rejection_of(request: web.Request) -> str:
    """Return why a request may come from another site than this page, or ""."""
    if request.headers.get(ACTION_HEADER) != "1":
        return f"expected the header {ACTION_HEADER}: 1, found none"
    if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        return "expected a request of this page, found one of another site"
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.host:
        return f"expected Origin {request.host}, found {origin[:300]}"
    if not _is_address(request.host):
        return f"expected an IP address or localhost as Host, found {request.host[:300]}"
    return ""


def _is_address(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


async def _read(request: web.Request) -> Request:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await request.read()
        return msgspec.json.decode(body, type=Request)
    except (TimeoutError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ActionRejected(400, f"expected a JSON object with pool: {error}") from error


class Actions:
    def __init__(
        self, service: ControllerService, store: ObjectStore, killer: BrokerKiller
    ) -> None:
        self._service = service
        self._store = store
        self._killer = killer

    async def elect(self, request: Request, by: str) -> str:
        """Elect the preferred leader of a partition."""
        pool, number = self._pool(request), request.partition
        named = self._service.topics_named(pool, request.topic)
        view = next((each for each in named if not each.is_retained), None)
        states = [each for each in view.partitions if each.partition == number] if view else []
        if view is None or not states:
            where = f"{request.topic[:249]}-{number}"
            raise ActionRejected(404, f"partition {where}: not found in pool {pool}")
        preferred = states[0].replicas[0]
        self._record(pool, ActionRequested(PageAction.ELECT, preferred, by, view.topic, number))
        topic_id = view.topic.topic_id
        found = await self._service.elect_leaders(pool, topic_id, (number,), unclean=False)
        match found[number]:
            case ErrorCode.NONE:
                return f"broker {preferred} is elected"
            case ErrorCode.ELECTION_NOT_NEEDED:
                return f"broker {preferred} leads already"
        raise ActionRejected(
            409, f"broker {preferred} is the preferred leader, but is not active and in sync"
        )

    async def drain(self, request: Request, by: str) -> str:
        """Add a broker to spec.drain of its BrokerPool, as `tidemark drain` does."""
        pool, broker_id = self._pool(request), self._broker(request)
        namespace, name = split_pool(pool)
        most = max((v.topic.replication_factor for v in self._service.topics(pool)), default=1)
        is_recorded = False
        for _ in range(MAX_TRIES):
            item = await self._store.get(BROKER_POOL, namespace, name)
            if item is None:
                raise ActionRejected(404, f"BrokerPool {name}: not found in {namespace}")
            drained = set(item["spec"].get("drain") or ())
            if broker_id in drained:
                return f"broker {broker_id} is being drained already"
            left = set(range(int(item["spec"].get("replicas", 1)))) - drained - {broker_id}
            if len(left) < most:
                raise ActionRejected(
                    409,
                    f"broker {broker_id} cannot be drained: a topic has replication factor {most},"
                    f" and {len(left)} brokers would remain",
                )
            if not is_recorded:
                is_recorded = True
                self._record(pool, ActionRequested(PageAction.DRAIN, broker_id, by))
            try:
                await self._store.replace(BROKER_POOL, _drained(item, drained | {broker_id}))
            except Conflict:
                continue  # another writer came first
            return (
                f"broker {broker_id} is being drained; `tidemark drain {broker_id} --undo` ends it"
            )
        raise ActionRejected(409, f"BrokerPool {name} is being changed by others: try again")

    async def kill(self, request: Request, by: str) -> str:
        """Kill a broker's process, or delete its pod."""
        pool, broker_id = self._pool(request), self._broker(request)
        self._record(pool, ActionRequested(PageAction.KILL, broker_id, by))
        if not await self._killer.kill(pool, broker_id):
            raise ActionRejected(409, f"broker {broker_id} does not run")
        return f"broker {broker_id} is killed"

    def _pool(self, request: Request) -> str:
        if not self._service.is_leading:
            raise NotController("on standby")
        if request.pool not in self._service.pools():
            raise ActionRejected(404, f"pool {request.pool[:320]}: not found")
        return request.pool

    def _broker(self, request: Request) -> BrokerId:
        for view in self._service.brokers(request.pool):
            if view.broker_id == request.broker and view.state != "Gone":
                return view.broker_id
        raise ActionRejected(404, f"broker {request.broker}: not found in pool {request.pool}")

    def _record(self, pool: str, action: ActionRequested) -> None:
        self._service.record_action(pool, action)
        topic = action.topic
        of = f"{topic.topic}-{action.partition}" if topic else f"broker {action.broker_id}"
        line = AuditLine(
            outcome=PERFORMED,
            address=action.requested_by,
            protocol="controller",
            verb=action.action.value,
            resource=f"{pool} {of}",
        )
        log.info("admin action", extra=line.fields())


def _drained(item: Object, drained: set[int]) -> Object:
    return item | {"spec": item["spec"] | {"drain": sorted(drained)}}
