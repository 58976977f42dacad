"""Fetch: a replica's goes to `ReplicaFetches`, a consumer's by its session to `ConsumerFetch`."""

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, TopicId

from tidemark_broker.runtime.follower_link import REPLICA_SESSION_ID
from tidemark_broker.runtime.kafka.addresses import reach_all_brokers
from tidemark_broker.runtime.kafka.consumer_fetch import ConsumerFetch, FetchLimits, Found
from tidemark_broker.runtime.kafka.fetch_sessions import (
    NO_SESSION,
    FetchSession,
    FetchSessions,
    Key,
    asked_of,
)
from tidemark_broker.runtime.kafka.leader_hints import LeaderHints
from tidemark_broker.runtime.kafka.quotas import Used
from tidemark_broker.runtime.kafka.requests import ApiHandler, KafkaRequest
from tidemark_broker.runtime.kafka.services import KafkaServices
from tidemark_broker.wire.api_versions import SupportedApi
from tidemark_broker.wire.consumer_fetch import (
    MIN_FETCH_VERSION_OF_CONSUMERS,
    decode_older_fetch_request,
)
from tidemark_broker.wire.consumer_fetch_answers import encode_consumer_fetch_response
from tidemark_broker.wire.fetch import (
    FIRST_FETCH_VERSION_WITH_LEADERS,
    MAX_FETCH_VERSION,
    MIN_FETCH_VERSION,
    FetchRequest,
    FetchResponse,
    PartitionAnswer,
    TopicAnswer,
    encode_fetch_response,
    fetch_request_steps,
)
from tidemark_broker.wire.frames import FETCH
from tidemark_broker.wire.primitives import MAX_ELEMENTS, MAX_ELEMENTS_OF_PEERS, MalformedFrame

_FIRST_VERSION_WITH_RACK = 11


def fetch_handler(services: KafkaServices) -> ApiHandler:
    consumers = ConsumerFetches(services)

    turns = services.answering.turns

    def take(request: KafkaRequest, fetch: FetchRequest) -> None:
        if fetch.replica_id >= 0:
            _fetch_of_replica(services, request, fetch)
        else:
            consumers.handle(request, fetch)

    def handle(request: KafkaRequest) -> None:
        if request.version < MIN_FETCH_VERSION:
            consumers.handle(request, decode_older_fetch_request(request.reader, request.version))
            return
        request.reader.elements_left = MAX_ELEMENTS_OF_PEERS
        steps = fetch_request_steps(request.reader, request.version)
        work = turns.take(request, steps, lambda fetch: take(request, fetch))
        if not work.is_over:
            request.cancel = work.cancel

    supported = SupportedApi(FETCH, MIN_FETCH_VERSION_OF_CONSUMERS, MAX_FETCH_VERSION)
    return ApiHandler(supported, handle, has_large_answer=True)


def _fetch_of_replica(services: KafkaServices, request: KafkaRequest, fetch: FetchRequest) -> None:
    correlation_id = request.header.correlation_id
    own_cluster = services.cluster_id
    if fetch.cluster_id is not None and own_cluster and fetch.cluster_id != own_cluster:
        error = FetchResponse(correlation_id, ErrorCode.INCONSISTENT_CLUSTER_ID)
        request.answer(encode_fetch_response(error))
        return
    if services.fetches.is_left(request.link, fetch) or not request.link.may_take(fetch):
        error = FetchResponse(correlation_id, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        request.answer(encode_fetch_response(error))
        return
    session_id = NO_SESSION if fetch.session_epoch < 0 else REPLICA_SESSION_ID

    def respond(topics: tuple[TopicAnswer, ...]) -> None:
        answer = FetchResponse(correlation_id, ErrorCode.NONE, topics, session_id)
        request.answer(encode_fetch_response(answer))

    broker = services.partitions.metadata.brokers.get(BrokerId(fetch.replica_id))
    if broker is not None and broker.broker_epoch == fetch.replica_epoch:
        request.link.is_peer = True
    else:
        _require_few(fetch)
    request.cancel = lambda: services.fetches.cancel(request.link)
    services.fetches.handle(fetch, request.link, respond)


def _require_few(fetch: FetchRequest) -> None:
    """Of brokers of the pool alone it is known only now that they may ask for more."""
    count = sum(len(topic.partitions) for topic in fetch.topics)
    if count > MAX_ELEMENTS:
        raise MalformedFrame(f"Fetch: expected at most {MAX_ELEMENTS} partitions, found {count}")


class ConsumerFetches:
    def __init__(self, services: KafkaServices) -> None:
        self._services = services
        self._sessions = FetchSessions(services.first_session_id)

    def handle(self, request: KafkaRequest, fetch: FetchRequest) -> None:
        _require_few(fetch)
        services = self._services
        session = self._sessions.find(fetch, services.clock())
        if isinstance(session, ErrorCode):
            self._answer(request, FetchResponse(request.header.correlation_id, session))
            return
        is_incremental = session is not None and fetch.session_epoch > 0
        quota_bytes = services.quotas.most_bytes(request.header.client_id, Used.FETCH_BYTES)

        def respond(found: Found) -> None:
            self._respond(request, session, found, is_incremental=is_incremental)

        consumer_fetch = ConsumerFetch(
            services.partitions,
            dict(session.asked) if session is not None else asked_of(fetch),
            FetchLimits(
                fetch.max_wait_ms,
                fetch.min_bytes,
                _most_bytes(fetch, quota_bytes),
                self._rack(request, fetch),
            ),
            scheduler=services.scheduler,
            clock=services.clock,
            share_bytes=services.memory.share_bytes,
            in_turns=lambda steps: services.answering.turns.take(request, steps, _no_more),
            respond=respond,
        )
        request.cancel = consumer_fetch.cancel
        request.hurry = consumer_fetch.hurry
        consumer_fetch.start()

    def _rack(self, request: KafkaRequest, fetch: FetchRequest) -> str | None:
        """None: it reads from leaders. Sent to a replica that it has no address of, it would ask
        the leader again and be sent there again."""
        if request.version < _FIRST_VERSION_WITH_RACK:
            return None
        metadata = self._services.partitions.metadata
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
        topics: dict[tuple[str, TopicId], list[PartitionAnswer]] = {}
        hints = LeaderHints(self._services.partitions, request.listener)
        for key, answer in found.items():
            if session is not None and is_incremental and not session.is_news(key, answer):
                continue
            has_failed = answer.error is not ErrorCode.NONE
            if has_failed and request.version >= FIRST_FETCH_VERSION_WITH_LEADERS:
                answer = self._with_leader(hints, key, answer)
            topics.setdefault(key[:2], []).append(answer)
            if session is not None:
                session.note_told(key, answer)
        named = {key[:2]: key for key in found}
        answers = tuple(
            TopicAnswer(named[name][1], tuple(entries), named[name][0])
            for name, entries in topics.items()
        )
        session_id = NO_SESSION if session is None else session.session_id
        correlation_id = request.header.correlation_id
        response = FetchResponse(correlation_id, ErrorCode.NONE, answers, session_id)
        self._answer(request, response._replace(nodes=hints.nodes.values()))

    def _with_leader(
        self, hints: LeaderHints, key: Key, answer: PartitionAnswer
    ) -> PartitionAnswer:
        topic = self._services.partitions.metadata.topics_by_id.get(key[1])
        if topic is None:
            return answer
        leader = hints.leader(answer.error, topic.topic, answer.partition)
        return answer._replace(current_leader=leader)

    def _answer(self, request: KafkaRequest, response: FetchResponse) -> None:
        read_bytes = sum(
            len(answer.records) for topic in response.topics for answer in topic.partitions
        )
        throttle_ms = self._services.quotas.throttle_ms(
            request.header.client_id, Used.FETCH_BYTES, read_bytes
        )
        request.throttle_ms = max(request.throttle_ms, throttle_ms)
        if request.throttle_ms:
            response = response._replace(throttle_ms=request.throttle_ms)
        request.answer(encode_consumer_fetch_response(response, request.version))


def _no_more(outcome: None) -> None:
    """A pass answers, or waits, by itself."""


def _most_bytes(fetch: FetchRequest, quota_bytes: int | None) -> int:
    """Kafka too gives at most what the window of the quota holds."""
    return fetch.max_bytes if quota_bytes is None else min(fetch.max_bytes, quota_bytes)
