"""Serve the paths below /consumers.

Only polling takes long, and a consumer's polls run one at a time. A client that disconnects while
it waits has received nothing, so nothing of that is committed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import msgspec
from tidemark_protocol.access_messages import ANONYMOUS, ResourceKind, Verb
from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.coordinator.core.consumer_protocol import TopicPartition
from tidemark_broker.http import leadership
from tidemark_broker.http.admission import Admission
from tidemark_broker.http.authentication import require_token
from tidemark_broker.http.broker_view import BrokerView
from tidemark_broker.http.consumers import bodies
from tidemark_broker.http.consumers.group_consumer import ConsumerSettings, Fetched, Unreadable
from tidemark_broker.http.consumers.group_member import GroupRejected, NotInGroup
from tidemark_broker.http.consumers.instances import Instance, Instances
from tidemark_broker.http.consumers.peer_connections import BearerToken, BrokerUnavailable
from tidemark_broker.http.consumers.positions import NoCommittedOffset
from tidemark_broker.http.leadership import client_url
from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.media_types import (
    RESPONSE_BYTES_PER_LOG_BYTE,
    EmbeddedFormat,
    format_of_response,
)
from tidemark_broker.http.problems import HttpProblem, kind_of
from tidemark_broker.http.queries import PollQuery, poll_query
from tidemark_broker.http.record_json import (
    FetchedRecords,
    RecordRenderer,
    UnrenderableRecords,
)
from tidemark_broker.http.request import Request
from tidemark_broker.http.response import ClientGone, Receive, Response, until_gone
from tidemark_broker.kafka_wire.messages.offsets import EARLIEST, LATEST

RESPONSE_TYPE = b"application/vnd.kafka.v2+json"
BODY_BYTES = HttpLimits(body_bytes=256 * 1024, forwarded_body_bytes=256 * 1024)
_ANY = frozenset({b"", b"*/*", RESPONSE_TYPE})
_DONE = Response(204, b"")

Action = Callable[[Request, Instance], Awaitable[Response]]
Result = TypeVar("Result")


class ConsumerRoutes:
    def __init__(self, view: BrokerView, limits: HttpLimits, admission: Admission) -> None:
        self.instances = Instances(view.new_consumer)
        self._admission = admission
        self._view = view
        self._metadata = view.partitions.metadata
        self._limits = limits
        self._made = 0

    def of_instance(self, action: Action) -> Callable[[Request, str, str], Awaitable[Response]]:
        """Return the endpoint of an action on one consumer: it takes the path's group and name."""

        async def endpoint(request: Request, group: str, name: str) -> Response:
            instance = self.instances.find(
                _group_id(group), unquote(name), user=request.principal.name
            )
            instance.consumer.settings.token.value = _token(request)
            return await action(request, instance)

        return endpoint

    # ---- making and ending

    async def create(self, request: Request, group: str) -> Response:
        group_id = _group_id(group)
        body = bodies.decode(await request.read_body(BODY_BYTES), bodies.NewConsumerBody)
        body.check()
        self._made += 1
        name = body.name or (
            f"consumer-{self._view.broker_id}-{self._view.incarnation[:8]}-{self._made}"
        )
        settings = ConsumerSettings(
            group_id,
            name,
            body.reset,
            body.commits_itself,
            body.smallest_fetch_bytes,
            BearerToken(_token(request)),
        )
        self.instances.create(
            settings,
            bodies.FORMATS[body.format],
            body.request_timeout_ms,
            user=request.principal.name,
        )
        base = client_url(
            self._metadata, self._view.broker_id, request.listener, has_tls=request.has_tls
        )
        path = f"/consumers/{quote(group_id, safe='')}/instances/{quote(name, safe='')}"
        return _json({"instance_id": name, "base_uri": base + path})

    async def delete(self, request: Request, instance: Instance) -> Response:
        await self.instances.delete(instance)
        return _DONE

    # ---- what it reads

    async def subscription(self, request: Request, instance: Instance) -> Response:
        held: dict[str, list[int]] = {}
        for topic, partition in instance.consumer.generation.partitions:
            held.setdefault(topic, []).append(partition)
        return _json(
            {
                "topics": list(instance.consumer.membership.topics),
                "partitions": [{topic: numbers} for topic, numbers in held.items()],
            }
        )

    async def subscribe(self, request: Request, instance: Instance) -> Response:
        body = bodies.decode(await request.read_body(BODY_BYTES), bodies.SubscriptionBody)
        topics = bodies.topics_of(body)
        await request.require(Verb.CONSUME, ResourceKind.TOPIC, topics)
        if instance.consumer.generation.is_manual:
            raise _conflict("expected no assignments, found some: send DELETE subscription first")
        instance.consumer.membership.subscribe(topics)
        return _DONE

    async def unsubscribe(self, request: Request, instance: Instance) -> Response:
        instance.consumer.membership.subscribe(())
        return _DONE

    async def assignments(self, request: Request, instance: Instance) -> Response:
        held = instance.consumer.generation.partitions
        return _json({"partitions": [{"topic": topic, "partition": at} for topic, at in held]})

    async def assign(self, request: Request, instance: Instance) -> Response:
        body = bodies.decode(await request.read_body(BODY_BYTES), bodies.TopicPartitionsBody)
        places = bodies.places_of(body)
        await _require_topics(request, places)
        self._require_known(places)
        if instance.consumer.membership.topics:
            raise _conflict("expected no subscription, found one: send DELETE subscription first")
        instance.consumer.membership.assign(places)
        return _DONE

    def _require_known(self, places: Iterable[TopicPartition]) -> None:
        """Raise HttpProblem (404) for an unknown partition."""
        for topic, partition in places:
            leadership.partition_number(self._metadata, topic, str(partition))

    # ---- records

    async def records(self, request: Request, instance: Instance) -> Response:
        query = poll_query(request.query_string, self._limits)
        embedded_format = instance.embedded_format
        if request.accept not in _ANY:
            embedded_format = format_of_response(request.accept)
        if instance.polls:
            raise _conflict("expected one poll at a time, found another one in progress")
        instance.polls += 1
        try:
            fetched = await self._poll(request, instance, query)
            await _require_topics(request, ((each.topic, each.partition) for each in fetched))
            lists = await self._rendered(instance, fetched, embedded_format)
        finally:
            instance.polls -= 1
            instance.used_s = asyncio.get_running_loop().time()
        body = b"[" + b",".join(lists) + b"]"
        return Response(200, body, embedded_format.value, _topic_ids(fetched))

    async def _rendered(
        self, instance: Instance, fetched: tuple[Fetched, ...], embedded: EmbeddedFormat
    ) -> list[bytes]:
        """Return each partition's records without the list's brackets.

        Raises HttpProblem: nothing is handed out, and the next poll continues after a record that
        this format cannot show. That is deferred once, for the records of the other partitions.
        """
        most_records = max(1, self._limits.records // max(1, len(fetched)))
        held_bytes = sum(len(found.data) for found in fetched)
        pieces: list[tuple[Fetched, FetchedRecords]] = []
        rejected: list[tuple[Fetched, UnrenderableRecords]] = []
        with self._admission.bytes_reserved(held_bytes * RESPONSE_BYTES_PER_LOG_BYTE):
            for found in fetched:
                renderer = RecordRenderer(
                    found.topic,
                    found.partition,
                    embedded,
                    most_records=most_records,
                    most_decompressed_bytes=self._limits.decompressed_bytes,
                    reserve=self._admission.bytes_reserved,
                )
                try:
                    pieces.append((found, await renderer.render(found.data, found.offset)))
                except UnrenderableRecords as error:
                    rejected.append((found, error))
        if rejected:
            has_others = any(len(rendered.body) > 2 for _, rendered in pieces)
            _notify_or_defer(instance, rejected, has_others=has_others)
        # Not before all of them are there: what is rejected must be read again.
        return [
            rendered.body[1:-1]
            for found, rendered in pieces
            if instance.consumer.hand_out(found, rendered.next_offset) and len(rendered.body) > 2
        ]

    async def _poll(
        self, request: Request, instance: Instance, query: PollQuery
    ) -> tuple[Fetched, ...]:
        wait_ms = instance.request_timeout_ms if query.wait_ms is None else query.wait_ms
        consumer = instance.consumer
        if not consumer.generation.is_manual and not consumer.membership.topics:
            raise _conflict(
                "expected a subscription or assignments, found none: send POST subscription"
            )
        try:
            polling = consumer.poll(wait_ms, query.max_bytes, self._admission.bytes_reserved)
            return await _unless_gone(request.receive, polling)
        except NotInGroup as error:
            future = (
                "delete it and create another one"
                if error.is_over
                else "it joins again automatically"
            )
            raise HttpProblem(
                error.error, f"this consumer: not in its group: {error}: {future}"
            ) from error
        except Unreadable as error:
            raise HttpProblem(error.error, f"{error}: {kind_of(error.error).title}") from error
        except NoCommittedOffset as error:
            raise HttpProblem(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{error}, and auto.offset.reset is none: set one with POST positions",
                status=409,
            ) from error

    # ---- offsets

    async def committed(self, request: Request, instance: Instance) -> Response:
        """Return committed offsets of the partitions in the body, or of the assigned ones."""
        places = instance.consumer.generation.partitions
        data = await request.read_body(BODY_BYTES)
        if data.strip():
            places = bodies.places_of(bodies.decode(data, bodies.TopicPartitionsBody))
            await _require_topics(request, places)
            self._require_known(places)
        try:
            committed = await instance.consumer.committed(places) if places else {}
        except BrokerUnavailable as error:
            raise HttpProblem(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        except GroupRejected as error:
            raise HttpProblem(error.error, str(error)) from error
        offsets = [
            {"topic": topic, "partition": at, "offset": commit.offset, "metadata": commit.metadata}
            for (topic, at), commit in committed.items()
        ]
        return _json({"offsets": offsets})

    async def commit(self, request: Request, instance: Instance) -> Response:
        data = (await request.read_body(BODY_BYTES)).strip()
        commits = bodies.commits_of(bodies.decode(data, bodies.CommitBody))
        await _require_topics(request, commits or ())
        self._require_known(commits or ())
        try:
            errors = await instance.consumer.commit(commits)
        except BrokerUnavailable as error:
            raise HttpProblem(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{error}: the offsets may or may not be committed: commit again",
            ) from error
        for (topic, partition), error_code in errors.items():
            if error_code is not ErrorCode.NONE:
                has_requested = topic in instance.consumer.membership.topics
                raise _not_committed(topic, partition, error_code, has_requested=has_requested)
        return _DONE

    async def seek(self, request: Request, instance: Instance) -> Response:
        body = bodies.decode(await request.read_body(BODY_BYTES), bodies.OffsetsBody)
        offsets = {place: commit.offset for place, commit in bodies.offsets_of(body).items()}
        return await self._seek_to(request, instance, offsets)

    async def seek_to_beginning(self, request: Request, instance: Instance) -> Response:
        return await self._seek_to_end_of(request, instance, EARLIEST)

    async def seek_to_end(self, request: Request, instance: Instance) -> Response:
        return await self._seek_to_end_of(request, instance, LATEST)

    async def _seek_to_end_of(self, request: Request, instance: Instance, end: int) -> Response:
        body = bodies.decode(await request.read_body(BODY_BYTES), bodies.TopicPartitionsBody)
        return await self._seek_to(request, instance, dict.fromkeys(bodies.places_of(body), end))

    async def _seek_to(
        self, request: Request, instance: Instance, places: dict[TopicPartition, int]
    ) -> Response:
        await _require_topics(request, places)
        self._require_known(places)
        for topic, partition in places:
            if (topic, partition) not in instance.consumer.generation.partitions:
                raise _conflict(f"expected an assigned partition, found {topic[:80]}-{partition}")
        try:
            await instance.consumer.seek(places)
        except BrokerUnavailable as error:
            raise HttpProblem(ErrorCode.LEADER_NOT_AVAILABLE, str(error)) from error
        return _DONE


async def _require_topics(request: Request, places: Iterable[TopicPartition]) -> None:
    topics = dict.fromkeys(topic for topic, _ in places)
    await request.require(Verb.CONSUME, ResourceKind.TOPIC, topics)


def _group_id(quoted: str) -> str:
    """Return the group id of a path.

    Raises HttpProblem for an illegal one.
    """
    group_id = unquote(quoted)
    if not group_id or len(group_id) > bodies.MAX_NAME:
        raise HttpProblem(
            ErrorCode.INVALID_GROUP_ID,
            f"group: expected 1 to {bodies.MAX_NAME} characters, found {len(group_id)}",
            status=400,
        )
    return group_id


async def _unless_gone(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """Run `work`; raise ClientGone if the client disconnects first."""
    doing = asyncio.create_task(work, name="poll of a consumer")
    watching = asyncio.create_task(until_gone(receive), name="client-watch")
    try:
        await asyncio.wait((doing, watching), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise ClientGone
        return doing.result()
    finally:
        doing.cancel()
        watching.cancel()


def _notify_or_defer(
    instance: Instance, rejected: list[tuple[Fetched, UnrenderableRecords]], *, has_others: bool
) -> None:
    """Raise the first problem, unless the others' records come first: once for each problem."""
    consumer = instance.consumer
    for found, _ in rejected:
        consumer.put_last(found, found.offset)
    found, problem = rejected[0]
    position = (found.topic, found.partition, found.offset)
    if has_others and position != instance.deferred:
        instance.deferred = position
        return
    if consumer.hand_out(found, problem.next_offset):  # its client has not gone elsewhere
        consumer.put_last(found, problem.next_offset)
        problem.members |= {"topic": found.topic, "partition": found.partition}
        raise problem


def _topic_ids(fetched: Iterable[Fetched]) -> tuple[tuple[bytes, bytes], ...]:
    """Return a header with the ids of the topics read; a recreated topic has another id."""
    ids = {found.topic: found.topic_id for found in fetched}
    reported = ", ".join(f"{topic}={topic_id}" for topic, topic_id in sorted(ids.items()))
    return ((b"tidemark-topic-ids", reported.encode()),) if reported else ()


def _token(request: Request) -> bytes:
    """Return the token of a client that authenticated, b"" where it did not have to."""
    if request.principal == ANONYMOUS:
        return b""
    require_token(request, "a consumer reads from several brokers")
    return request.authorization.split(b" ")[-1]


def _json(document: object) -> Response:
    return Response(200, msgspec.json.encode(document), RESPONSE_TYPE)


def _conflict(detail: str) -> HttpProblem:
    return HttpProblem(ErrorCode.INVALID_REQUEST, f"this consumer: {detail}", status=409)


def _not_committed(
    topic: str, partition: int, error: ErrorCode, *, has_requested: bool
) -> HttpProblem:
    """Return the problem of a partition that was not committed.

    `has_requested` if the consumer subscribes to the topic, so the partition may have been
    assigned.
    """
    detail = f"partition {topic}-{partition}: {kind_of(error).title}"
    if error is ErrorCode.REBALANCE_IN_PROGRESS and not has_requested:
        return _conflict(
            f"partition {topic}-{partition} is in neither its subscription nor its assignments"
        )
    if error in (
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ):
        detail = (
            f"partition {topic}-{partition}: no longer assigned to this consumer: poll, and commit"
            " what that poll returns; another consumer may have read the partition"
        )
        return HttpProblem(error, detail, status=409)
    return HttpProblem(error, detail)
