"""Answer Fetch of replicas (`FollowerFetchHandler`) and consumers (`ConsumerFetch`).

A consumer's fetch gets one answer, when there is enough data or its wait is over. Each pass reads
the records that each partition has. If they are too few, the pass delays a read at every partition,
for that partition's share of the missing bytes. The first delayed read that completes starts the
next pass, at most one a loop tick. A pass over many partitions takes many turns of the loop; new
records do not end it early.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tidemark_protocol.access_messages import Verb
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, LeaderEpoch, TopicId

from tidemark_broker.clock import Clock, Scheduler, Timer
from tidemark_broker.kafka.apis.access_check import NO_TOPICS
from tidemark_broker.kafka.apis.advertised_listeners import reach_all_brokers
from tidemark_broker.kafka.apis.current_leaders import CurrentLeaders
from tidemark_broker.kafka.apis.fetch_sessions import (
    NO_SESSION,
    FetchSession,
    FetchSessions,
    Key,
    requested_of,
)
from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest
from tidemark_broker.kafka_wire.messages.api_versions import SupportedApi
from tidemark_broker.kafka_wire.messages.cooperative_steps import Steps
from tidemark_broker.kafka_wire.messages.fetch import (
    FIRST_FETCH_VERSION_WITH_LEADERS,
    MAX_FETCH_VERSION,
    MIN_FETCH_VERSION,
    MIN_FETCH_VERSION_OF_CONSUMERS,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionResponse,
    TopicResponse,
    decode_older_fetch_request,
    encode_consumer_fetch_response,
    encode_fetch_response,
    fetch_request_steps,
)
from tidemark_broker.kafka_wire.messages.frames import FETCH
from tidemark_broker.kafka_wire.messages.primitives import (
    MAX_ELEMENTS,
    MAX_ELEMENTS_OF_PEERS,
    MalformedFrame,
)
from tidemark_broker.quota_manager import QuotaType
from tidemark_broker.replication.follower_session import REPLICA_SESSION_ID
from tidemark_broker.replication.replica_manager import FetchResult, ReplicaManager
from tidemark_broker.replication.results import Consumer

MAX_RESPONSE_BYTES = 55 * 1024 * 1024  # Kafka's fetch.max.bytes of a broker
MAX_WAIT_MS = 5 * 60 * 1000

Found = dict[Key, PartitionResponse]


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The limits of a fetch; a `rack` of None means that the client is too old to be redirected."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    rack: str | None
    denied: frozenset[str] = NO_TOPICS  # topics that the client may not read


class ConsumerFetch:
    def __init__(
        self,
        partitions: ReplicaManager,
        requested: dict[Key, FetchPartition],
        limits: FetchLimits,
        *,
        scheduler: Scheduler,
        clock: Clock,
        share_bytes: Callable[[], int],
        in_turns: Callable[[Steps[None]], object],
        respond: Callable[[Found], None],
    ) -> None:
        """Create a fetch that has not started.

        `respond` is called once, maybe before `start` returns; not after `cancel`. `share_bytes`
        returns how much an answer may read now, whatever the client asked for. `in_turns` runs a
        pass in slices until it ends.
        """
        self._partitions = partitions
        self._requested = requested
        self._requested_bytes = max(1, min(limits.max_bytes, MAX_RESPONSE_BYTES))
        self._requested_min_bytes = limits.min_bytes
        self._share_bytes = share_bytes
        self._in_turns = in_turns
        self._rack = limits.rack
        self._denied = limits.denied
        self._scheduler = scheduler
        self._clock = clock
        self._deadline_ms = clock() + max(0, min(limits.max_wait_ms, MAX_WAIT_MS))
        self._respond = respond
        self._cancels: list[Callable[[], None]] = []
        self._timer: Timer | None = None
        self._is_passing = False
        self._has_change = False
        self._is_over = False

    def start(self) -> None:
        """Run the first pass, which answers or waits."""
        self._is_passing = True
        self._in_turns(self._pass())

    def _pass(self) -> Steps[None]:
        yield from self._read_all()
        self._is_passing = False
        if self._has_change and not self._is_over:
            self._scheduler.call_soon(self._pass_again)

    def _read_all(self) -> Steps[None]:
        found: Found = {}
        read_bytes: dict[Key, int] = {}
        total = 0
        # Who asks for no partition waits for nothing, as Kafka: clients end their sessions so.
        is_final = not self._requested or self._clock() >= self._deadline_ms
        # Who asks for no byte at all is given one batch a time, as by Kafka.
        max_bytes = max(1, min(self._requested_bytes, self._share_bytes()))
        for key, requested in self._requested.items():
            read_bytes[key] = min(max(1, requested.max_bytes), max_bytes - total)
            response = self._read(key, requested, read_bytes[key])
            found[key] = response
            total += len(response.records)
            is_final = is_final or _ends_the_wait(response)
            yield 1
            if self._is_over:
                return
        missing_bytes = min(self._requested_min_bytes, max_bytes) - total
        if is_final or missing_bytes <= 0:
            self._is_over = True
            self._respond(found)
            return
        # So much more at one partition at least: were it less at each, it would be too little.
        yield from self._park(found, read_bytes, -(-missing_bytes // len(self._requested)))

    def hurry(self) -> None:
        """End the wait: answer with what there is."""
        self._deadline_ms = self._clock()
        self._wake()

    def cancel(self) -> None:
        self._is_over = True
        self._leave()

    # ---- inside

    def _read(self, key: Key, requested: FetchPartition, max_bytes: int) -> PartitionResponse:
        topic = self._topic(key)
        if isinstance(topic, ErrorCode):
            return PartitionResponse(requested.partition, topic)
        if max_bytes <= 0:  # others have filled the answer; every read gives at least one batch
            view = self._partitions.replica(topic, requested.partition)
            if view is not None:
                return PartitionResponse(
                    requested.partition, ErrorCode.NONE, view.high_watermark, view.log_start_offset
                )
        results: list[FetchResult] = []
        self._partitions.fetch(
            topic,
            requested.partition,
            requested.fetch_offset,
            max_bytes=max_bytes,
            min_bytes=0,
            max_wait_ms=0,
            done=results.append,
            consumer=self._consumer(requested),
        )
        return _answer(requested.partition, results[0])

    def _park(self, found: Found, read_bytes: dict[Key, int], more_bytes: int) -> Steps[None]:
        wait_ms = max(1, self._deadline_ms - self._clock())
        self._timer = self._scheduler.call_later(wait_ms / 1000, self._wake)
        for key, requested in self._requested.items():
            topic = self._topic(key)
            if isinstance(topic, ErrorCode):
                continue
            cancel = self._partitions.fetch(
                topic,
                requested.partition,
                requested.fetch_offset,
                max_bytes=read_bytes[key],
                min_bytes=len(found[key].records) + more_bytes,
                max_wait_ms=wait_ms,
                done=self._wake,
                consumer=self._consumer(requested),
            )
            self._cancels.append(cancel)
            yield 1
            if self._is_over:
                self._leave()
                return

    def _wake(self, news: FetchResult | None = None) -> None:
        """Schedule a pass; the caller may be in the middle of an append."""
        if not self._has_change:
            self._has_change = True
            self._scheduler.call_soon(self._pass_again)

    def _pass_again(self) -> None:
        if self._is_over or self._is_passing or not self._has_change:
            return
        self._has_change = False
        self._leave()
        self.start()

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        cancels, self._cancels = self._cancels, []
        for cancel in cancels:
            cancel()

    def _consumer(self, requested: FetchPartition) -> Consumer:
        return Consumer(self._rack, LeaderEpoch(requested.current_leader_epoch))

    def _topic(self, key: Key) -> str | ErrorCode:
        name, topic_id, _ = key
        if name:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED if name in self._denied else name
        topic = self._partitions.metadata.topics_by_id.get(topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        present = self._partitions.metadata.topics.get(topic.topic)
        # guard: topic-id-is-present-one (B12)
        is_replaced = present is None or present.topic_id != topic_id
        if is_replaced:
            return ErrorCode.UNKNOWN_TOPIC_ID
        is_denied = topic.topic in self._denied
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_denied else topic.topic


def _ends_the_wait(answer: PartitionResponse) -> bool:
    return answer.error is not ErrorCode.NONE or answer.preferred_replica >= 0


def _answer(partition: int, result: FetchResult) -> PartitionResponse:
    return PartitionResponse(
        partition,
        result.error,
        result.high_watermark,
        result.log_start_offset,
        result.data,
        preferred_replica=result.preferred_replica,
    )


_FIRST_VERSION_WITH_RACK = 11


def fetch_handler(context: HandlerContext) -> ApiHandler:
    consumers = ConsumerFetches(context)

    turns = context.answering.turns

    def take(request: KafkaRequest, fetch: FetchRequest) -> None:
        if fetch.replica_id >= 0:
            _fetch_of_replica(context, request, fetch)
        else:
            _require_clients(request)
            consumers.handle(request, fetch)

    def handle(request: KafkaRequest) -> None:
        if request.version < MIN_FETCH_VERSION:
            _require_clients(request)
            consumers.handle(request, decode_older_fetch_request(request.reader, request.version))
            return
        request.reader.elements_left = MAX_ELEMENTS_OF_PEERS
        steps = fetch_request_steps(request.reader, request.version)
        work = turns.take(request, steps, lambda fetch: take(request, fetch))
        if not work.is_over:
            request.cancel = work.cancel

    supported = SupportedApi(FETCH, MIN_FETCH_VERSION_OF_CONSUMERS, MAX_FETCH_VERSION)
    return ApiHandler(supported, handle, has_large_response=True)


def _require_clients(request: KafkaRequest) -> None:
    """Reject a consumer's fetch on a listener for replicas, which authenticates no clients."""
    if not request.session.rules.serves_clients:
        raise MalformedFrame("Fetch: this port serves only replicas")


def _fetch_of_replica(context: HandlerContext, request: KafkaRequest, fetch: FetchRequest) -> None:
    correlation_id = request.header.correlation_id
    own_cluster = context.cluster_id()
    # Where clients have names, brokers have a listener of their own.
    is_client = context.access.is_checked(request)
    # guard: replica-is-who-its-certificate-names (S33)
    if is_client or not request.link.may_fetch_as(fetch.replica_id):
        context.rejections.note(
            request.client_host,
            "fetch as a replica",
            f"{request.principal.name} fetches as broker {fetch.replica_id}",
            protocol="kafka",
            listener=request.listener,
        )
        error = FetchResponse(correlation_id, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        request.errors.append(error.error)
        request.answer(encode_fetch_response(error))
        return
    if fetch.cluster_id is not None and own_cluster and fetch.cluster_id != own_cluster:
        error = FetchResponse(correlation_id, ErrorCode.INCONSISTENT_CLUSTER_ID)
        request.errors.append(error.error)
        request.answer(encode_fetch_response(error))
        return
    if context.fetches.is_left(request.link, fetch) or not request.link.may_apply(fetch):
        error = FetchResponse(correlation_id, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        request.errors.append(error.error)
        request.answer(encode_fetch_response(error))
        return
    session_id = NO_SESSION if fetch.session_epoch < 0 else REPLICA_SESSION_ID

    def respond(topics: tuple[TopicResponse, ...]) -> None:
        response = FetchResponse(correlation_id, ErrorCode.NONE, topics, session_id)
        request.errors.extend(_errors_of(response))
        request.answer(encode_fetch_response(response))

    broker = context.partitions.metadata.brokers.get(BrokerId(fetch.replica_id))
    if broker is not None and broker.broker_epoch == fetch.replica_epoch:
        request.link.is_peer = True
    else:
        _require_few(fetch)
    request.cancel = lambda: context.fetches.cancel(request.link)
    context.fetches.handle(fetch, request.link, respond)


def _require_few(fetch: FetchRequest) -> None:
    """Reject a request with too many partitions.

    Only brokers of the pool may ask for more, and whether the sender is one is known only now.
    """
    count = sum(len(topic.partitions) for topic in fetch.topics)
    if count > MAX_ELEMENTS:
        raise MalformedFrame(f"Fetch: expected at most {MAX_ELEMENTS} partitions, found {count}")


class ConsumerFetches:
    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self._sessions = FetchSessions(context.first_session_id)

    def handle(self, request: KafkaRequest, fetch: FetchRequest) -> None:
        _require_few(fetch)
        context = self._context
        session = self._sessions.find(fetch, context.clock())
        if isinstance(session, ErrorCode):
            self._answer(request, FetchResponse(request.header.correlation_id, session))
            return
        requested = dict(session.requested) if session is not None else requested_of(fetch)
        if not context.access.is_checked(request):
            self._start(request, fetch, session, requested, NO_TOPICS)
            return
        topics = self._topics(requested)
        context.access.check_topics(
            request,
            Verb.CONSUME,
            topics,
            lambda denied: self._start(
                request, self._bounded(request, fetch, topics), session, requested, denied
            ),
        )

    def _topics(self, requested: Iterable[Key]) -> frozenset[str]:
        """Return the names of the topics; one whose id is unknown has none."""
        by_id = self._context.partitions.metadata.topics_by_id
        named = {(name, topic_id) for name, topic_id, _ in requested}
        names = {name for name, _ in named if name}
        names.update(by_id[topic_id].topic for name, topic_id in named if topic_id in by_id)
        return frozenset(names)

    def _bounded(
        self, request: KafkaRequest, fetch: FetchRequest, topics: Iterable[str]
    ) -> FetchRequest:
        """Return the request with a wait that ends before the check of its topics is stale."""
        fresh_ms = self._context.access.fresh_ms(request, Verb.CONSUME, topics)
        return fetch._replace(max_wait_ms=min(fetch.max_wait_ms, fresh_ms))

    def _start(
        self,
        request: KafkaRequest,
        fetch: FetchRequest,
        session: FetchSession | None,
        requested: dict[Key, FetchPartition],
        denied: frozenset[str],
    ) -> None:
        context = self._context
        is_incremental = session is not None and fetch.session_epoch > 0
        quota_bytes = context.quotas.most_bytes(request.header.client_id, QuotaType.FETCH_BYTES)

        def respond(found: Found) -> None:
            self._respond(request, session, found, is_incremental=is_incremental)

        consumer_fetch = ConsumerFetch(
            context.partitions,
            requested,
            FetchLimits(
                fetch.max_wait_ms,
                fetch.min_bytes,
                _most_bytes(fetch, quota_bytes),
                self._rack(request, fetch),
                denied,
            ),
            scheduler=context.scheduler,
            clock=context.clock,
            share_bytes=context.memory.share_bytes,
            in_turns=lambda steps: context.answering.turns.take(request, steps, _no_more),
            respond=respond,
        )
        request.cancel = consumer_fetch.cancel
        request.on_hurry = consumer_fetch.hurry
        consumer_fetch.start()
        if request.is_hurried:  # while it was decoded
            consumer_fetch.hurry()

    def _rack(self, request: KafkaRequest, fetch: FetchRequest) -> str | None:
        """Return the rack by which the client is redirected, or None if it reads from leaders.

        A client that has no address of the replica would ask the leader again and be redirected
        again.
        """
        if request.version < _FIRST_VERSION_WITH_RACK:
            return None
        metadata = self._context.partitions.metadata
        may_leave = not fetch.rack or reach_all_brokers(metadata, request.listener)
        return fetch.rack if may_leave else None

    def _respond(
        self,
        request: KafkaRequest,
        session: FetchSession | None,
        found: Found,
        *,
        is_incremental: bool,
    ) -> None:
        topics: dict[tuple[str, TopicId], list[PartitionResponse]] = {}
        hints = CurrentLeaders(self._context.partitions, request.listener)
        for key, answer in found.items():
            if session is not None and is_incremental and not session.is_change(key, answer):
                continue
            has_failed = answer.error is not ErrorCode.NONE
            if has_failed and request.version >= FIRST_FETCH_VERSION_WITH_LEADERS:
                answer = self._with_leader(hints, key, answer)
            topics.setdefault(key[:2], []).append(answer)
            if session is not None:
                session.record_reported(key, answer)
        named = {key[:2]: key for key in found}
        responses = tuple(
            TopicResponse(named[name][1], tuple(entries), named[name][0])
            for name, entries in topics.items()
        )
        session_id = NO_SESSION if session is None else session.session_id
        correlation_id = request.header.correlation_id
        response = FetchResponse(correlation_id, ErrorCode.NONE, responses, session_id)
        self._answer(request, response._replace(nodes=hints.nodes.values()))

    def _with_leader(
        self, hints: CurrentLeaders, key: Key, answer: PartitionResponse
    ) -> PartitionResponse:
        topic = self._context.partitions.metadata.topics_by_id.get(key[1])
        if topic is None:
            return answer
        leader = hints.leader(answer.error, topic.topic, answer.partition)
        return answer._replace(current_leader=leader)

    def _answer(self, request: KafkaRequest, response: FetchResponse) -> None:
        read_bytes = sum(
            len(answer.records) for topic in response.topics for answer in topic.partitions
        )
        request.errors.extend(_errors_of(response))
        throttle_ms = self._context.quotas.throttle_ms(
            request.header.client_id, QuotaType.FETCH_BYTES, read_bytes
        )
        request.throttle_ms = max(request.throttle_ms, throttle_ms)
        if request.throttle_ms:
            response = response._replace(throttle_ms=request.throttle_ms)
        request.answer(encode_consumer_fetch_response(response, request.version))


def _errors_of(response: FetchResponse) -> Iterator[ErrorCode]:
    if response.error is not ErrorCode.NONE:
        yield response.error
    for topic in response.topics:
        for answer in topic.partitions:
            if answer.error is not ErrorCode.NONE:
                yield answer.error


def _no_more(outcome: None) -> None:
    """Do nothing: a pass answers or waits by itself."""


def _most_bytes(fetch: FetchRequest, quota_bytes: int | None) -> int:
    """Return the most bytes for the answer; as in Kafka at most what the quota's window holds."""
    return fetch.max_bytes if quota_bytes is None else min(fetch.max_bytes, quota_bytes)
