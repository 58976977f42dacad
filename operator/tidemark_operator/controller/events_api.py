"""Serve the event log and the answers to "why" of the controller's pools.

`GET /v1/events` takes `pool`, `topic`, `partition`, `broker`, `after` (an event number) and `limit`
and answers `{"pool", "term", "oldest", "newest", "events"}`, oldest first. Numbers begin at 1 in
each `term` (the controller epoch), so a reader that sees another term reads from 0 on. `GET
/v1/why` takes `topic`, `partition` and `pool`, and answers questions about the partition. `pool` is
`namespace/name`; without it the only pool is meant. A standby answers 503 and names the leader.
"""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web
from tidemark_protocol.controller_messages import encode

from tidemark_operator.controller.core.event_texts import document_of
from tidemark_operator.controller.core.explanations import Explanation
from tidemark_operator.controller.core.timeline import Event
from tidemark_operator.controller.service import ControllerService

EVENTS_PATH = "/v1/events"
WHY_PATH = "/v1/why"

MAX_LIMIT = 1000
EVENTS_AT_A_TIME = 50  # some milliseconds of the loop


class Unanswered(Exception):
    """An error: the request cannot be answered; the text says what was expected."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


def add_event_routes(app: web.Application, service: ControllerService) -> None:
    app.router.add_get(EVENTS_PATH, _answering(service, _events))
    app.router.add_get(WHY_PATH, _answering(service, _why))


Answering = Callable[[ControllerService, web.Request], Awaitable[dict[str, object]]]


def _answering(
    service: ControllerService, answer: Answering
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def respond(request: web.Request) -> web.Response:
        try:
            return _json(200, await answer(service, request))
        except Unanswered as error:
            return _json(error.status, {"problems": [str(error)]})

    return respond


async def _events(service: ControllerService, request: web.Request) -> dict[str, object]:
    pool = pool_of(service, request)
    timeline = service.timeline(pool)
    topic = request.query.get("topic", "")
    partition, broker_id = _number(request, "partition", -1), _number(request, "broker", -1)
    after, limit = _number(request, "after", 0), _number(request, "limit", MAX_LIMIT)
    found: list[Event] = []
    while len(found) < limit and (some := timeline.after(after, EVENTS_AT_A_TIME)):
        found += [each for each in some if each.concerns(topic, partition, broker_id)]
        after = some[-1].number
        await asyncio.sleep(0)
    return {
        "pool": pool,
        "term": service.controller_epoch,
        "oldest": timeline.oldest,
        "newest": timeline.newest,
        "events": await _documents(found[:limit]),
    }


async def _documents(events: list[Event]) -> list[dict[str, object]]:
    documents = []
    for number, event in enumerate(events, 1):
        documents.append(document_of(event))
        if number % EVENTS_AT_A_TIME == 0:
            await asyncio.sleep(0)
    return documents


async def _why(service: ControllerService, request: web.Request) -> dict[str, object]:
    pool, topic = pool_of(service, request), request.query.get("topic", "")
    number = _number(request, "partition", 0)
    explanation = service.explanation(pool, topic, number)
    if explanation is None:
        raise Unanswered(404, _missing(service, pool, topic, number))
    return _explanation_json(pool, explanation)


def _missing(service: ControllerService, pool: str, topic: str, number: int) -> str:
    views = [view for view in service.topics_named(pool, topic) if not view.is_retained]
    if not views:
        return f"topic {topic[:249]!r} not found in pool {pool}"
    last = views[0].topic.partition_count - 1
    return f"partition {topic}-{number} not found: expected 0 to {last}"


def _explanation_json(pool: str, explanation: Explanation) -> dict[str, object]:
    partition = explanation.partition
    return {
        "pool": pool,
        "topic": explanation.topic.topic,
        "partition": partition.partition,
        "leader": partition.leader,
        "leaderEpoch": partition.leader_epoch,
        "replicas": partition.replicas,
        "isr": [member.broker_id for member in partition.in_sync_replicas],
        "minIsr": partition.min_insync_replicas,
        "answers": [
            {"question": each.question, "answer": each.answer, "atMs": each.at_ms}
            for each in explanation.answers
        ],
        "events": [document_of(event) for event in explanation.events],
    }


def pool_of(service: ControllerService, request: web.Request) -> str:
    """Return the pool that the request names, or the only one. Raises Unanswered."""
    if not service.is_leading:
        leader = service.leader_address
        where = f": ask {leader}" if leader else ", and no leader is known: retry"
        raise Unanswered(503, f"this operator is on standby{where}")
    pools = service.pools()
    wanted = request.query.get("pool", "")
    if not wanted and len(pools) == 1:
        return pools[0]
    if wanted in pools:
        return wanted
    known = ", ".join(pools[:20]) or "no pool"
    raise Unanswered(404, f"pool: expected one of {known}; found {wanted[:320] or 'none'}")


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 16:
        raise Unanswered(400, f"{name}: expected a number from 0 to 10^16, found {text[:80]!r}")
    return min(int(text), MAX_LIMIT) if name == "limit" else int(text)


def _json(status: int, value: object) -> web.Response:
    return web.Response(status=status, body=encode(value), content_type="application/json")
