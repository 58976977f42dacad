"""Answer Produce, each partition by `ReplicaManager.produce`, and InitProducerId.

First the header of a batch is checked for what older clients may send: a record format before v2,
more than one batch, zstd before the version that added it (KIP-110). One answer is sent when all
partitions have theirs.

Transactions do not exist: a transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED, on which
each client gives up.
"""

from collections.abc import Sequence

from tidemark_protocol.access_messages import Verb
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import TopicId

from tidemark_broker.kafka.apis.access_check import NO_TOPICS
from tidemark_broker.kafka.apis.current_leaders import CurrentLeaders
from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.network.request import NO_RESPONSE, ApiHandler, KafkaRequest
from tidemark_broker.kafka_wire.messages.api_versions import SupportedApi
from tidemark_broker.kafka_wire.messages.cooperative_steps import WHOLE_TURN, Steps
from tidemark_broker.kafka_wire.messages.frames import PRODUCE
from tidemark_broker.kafka_wire.messages.primitives import INT16, INT32
from tidemark_broker.kafka_wire.messages.produce import (
    FIRST_PRODUCE_VERSION_WITH_IDS,
    INIT_PRODUCER_ID_API,
    MAX_PRODUCE_VERSION,
    MIN_PRODUCE_VERSION,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    decode_produce_request,
    encode_produce_response,
)
from tidemark_broker.kafka_wire.messages.schema import Values
from tidemark_broker.quota_manager import QuotaType
from tidemark_broker.replication.record_appender import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from tidemark_broker.replication.record_errors import MOST_RECORD_ERRORS
from tidemark_broker.replication.replica_manager import ProduceResult, ReplicaManager

_LENGTH_AT, _MAGIC_AT, _ATTRIBUTES_AT = 8, 16, 21
_LENGTH_END = 12
_ZSTD = 4
_FIRST_VERSION_WITH_ZSTD = 7
BATCHES_OF_A_TURN = 64  # each is a write to a file
BYTES_OF_A_STEP = 256 * 1024  # of a batch that is large


def produce_handler(context: HandlerContext) -> ApiHandler:
    topics_by_id = context.partitions.metadata.topics_by_id

    def name_of(topic_id: TopicId) -> str:
        known = topics_by_id.get(topic_id)
        return "" if known is None else known.topic

    def handle(request: KafkaRequest) -> None:
        produce = decode_produce_request(request.reader, request.version, name_of=name_of)
        size_bytes = request.reader.end
        throttle_ms = context.quotas.throttle_ms(
            request.header.client_id, QuotaType.PRODUCE_BYTES, size_bytes
        )
        request.throttle_ms = max(request.throttle_ms, throttle_ms)
        if not context.access.is_checked(request):
            start(request, produce)
            return
        # No other request of the connection begins before `start` has released this one.
        topics = {requested.topic for requested in produce.partitions if requested.topic}
        context.access.check_topics(
            request, Verb.PRODUCE, topics, lambda denied: start(request, produce, denied)
        )

    def start(
        request: KafkaRequest, produce: ProduceRequest, denied: frozenset[str] = NO_TOPICS
    ) -> None:
        producing = ProduceHandler(context.partitions, request, produce, denied)
        context.answering.turns.take(
            request,
            producing.start_steps(produce.partitions),
            lambda _: request.release(0),
            steps_of_a_slice=BATCHES_OF_A_TURN,
        )

    supported = SupportedApi(PRODUCE, MIN_PRODUCE_VERSION, MAX_PRODUCE_VERSION)
    return ApiHandler(supported, handle, overlaps=True)


class ProduceHandler:
    """A request until its last partition is answered. It keeps no records.

    Batches of `denied` topics are not appended.
    """

    __slots__ = (
        "_denied",
        "_left",
        "_partitions",
        "_places",
        "_produce",
        "_record_errors_left",
        "_request",
        "_responses",
    )

    def __init__(
        self,
        partitions: ReplicaManager,
        request: KafkaRequest,
        produce: ProduceRequest,
        denied: frozenset[str] = NO_TOPICS,
    ) -> None:
        self._partitions = partitions
        self._request = request
        self._denied = denied
        self._produce = produce._replace(partitions=())
        self._places = tuple(
            (requested.topic, requested.partition, requested.topic_id)
            for requested in produce.partitions
        )
        self._left = len(self._places)
        self._responses: list[ProduceResponse | None] = [None] * self._left
        self._record_errors_left = MOST_RECORD_ERRORS

    def start_steps(self, partitions: Sequence[ProducePartition]) -> Steps[None]:
        """Append the batches in steps.

        Until it ends no other request of the connection begins, so that batches keep their order.
        """
        if not self._left:
            self._finish()
        for index, requested in enumerate(partitions):
            rejected = rejection(requested, self._produce, self._request.version)
            if requested.topic in self._denied:
                rejected = ProduceResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if rejected is not None:
                self._done(index, rejected)
            else:
                self._append(index, requested)
            yield self._steps_of(requested) if index + 1 < len(partitions) else 1

    def _steps_of(self, requested: ProducePartition) -> int:
        replica = self._partitions.find_leading(requested.topic, requested.partition)
        is_opened = not isinstance(replica, ErrorCode) and replica.log.settings.opens_batches
        return WHOLE_TURN if is_opened else 1 + len(requested.records) // BYTES_OF_A_STEP

    def _append(self, index: int, requested: ProducePartition) -> None:
        self._partitions.produce(
            requested.topic,
            requested.partition,
            requested.records,
            acks=self._produce.acks,
            timeout_ms=self._produce.timeout_ms,
            done=lambda result: self._done(index, result),
        )

    def _done(self, index: int, result: ProduceResult) -> None:
        if result.error is not ErrorCode.NONE:
            self._request.errors.append(result.error)
        topic, partition, topic_id = self._places[index]
        record_errors = result.record_errors[: self._record_errors_left]
        self._record_errors_left -= len(record_errors)
        self._responses[index] = ProduceResponse(
            topic,
            partition,
            result.error,
            result.base_offset,
            append_time_ms=result.append_time_ms,
            log_start_offset=result.log_start_offset,
            message=result.message,
            record_errors=record_errors,
            topic_id=topic_id,
        )
        self._left -= 1
        if not self._left:
            self._finish()

    def _finish(self) -> None:
        request = self._request
        responses = [response for response in self._responses if response is not None]
        if self._produce.acks == ACKS_NONE:
            failed = [response for response in responses if response.error is not ErrorCode.NONE]
            if failed:  # as Kafka: nobody reads an answer, so a closed connection has to say it
                request.fail(f"acks=0: {failed[0].error.name} {failed[0].message}")
                return
            request.answer(NO_RESPONSE)
            return
        header = request.header
        hints = CurrentLeaders(self._partitions, request.listener)
        if any(response.error is not ErrorCode.NONE for response in responses):
            responses = [_with_leader(hints, response) for response in responses]
        request.answer(
            encode_produce_response(
                header.correlation_id,
                header.api_version,
                responses,
                throttle_ms=request.throttle_ms,
                nodes=hints.nodes.values(),
            )
        )


def _with_leader(hints: CurrentLeaders, answer: ProduceResponse) -> ProduceResponse:
    leader = hints.leader(answer.error, answer.topic, answer.partition)
    return answer._replace(current_leader=leader)


def rejection(
    requested: ProducePartition, produce: ProduceRequest, version: int
) -> ProduceResult | None:
    """Return the error of a batch that is not tried, or None.

    `ReplicaManager.produce` decides the rest.
    """
    if produce.transactional_id is not None:
        return ProduceResult(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            message="transactions are not supported",
        )
    if produce.acks not in (ACKS_ALL, ACKS_NONE, ACKS_LEADER):
        return ProduceResult(ErrorCode.INVALID_REQUIRED_ACKS)
    if not requested.topic and version >= FIRST_PRODUCE_VERSION_WITH_IDS:
        return ProduceResult(ErrorCode.UNKNOWN_TOPIC_ID)
    records = requested.records
    if len(records) <= _MAGIC_AT:
        return None
    if records[_MAGIC_AT] != 2:
        return ProduceResult(
            ErrorCode.INVALID_RECORD,
            message=f"record format v{records[_MAGIC_AT]}: expected record batches (v2)",
        )
    if _LENGTH_END + int(INT32.unpack_from(records, _LENGTH_AT)[0]) < len(records):
        return ProduceResult(ErrorCode.INVALID_RECORD, message="expected one record batch")
    if len(records) < _ATTRIBUTES_AT + 2 or version >= _FIRST_VERSION_WITH_ZSTD:
        return None
    if int(INT16.unpack_from(records, _ATTRIBUTES_AT)[0]) & 7 == _ZSTD:
        return ProduceResult(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            message=f"zstd: expected Produce v{_FIRST_VERSION_WITH_ZSTD} or later",
        )
    return None


def init_producer_id_handler(context: HandlerContext) -> ApiHandler:
    async def respond(request: KafkaRequest, requested: Values) -> Values:
        if requested["transactional_id"] is not None:
            return {"error": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        given = await context.producer_ids.init(
            requested["producer_id"], requested["producer_epoch"]
        )
        return {
            "error": given.error,
            "producer_id": given.producer_id,
            "producer_epoch": given.producer_epoch,
        }

    return context.answering.async_handler(INIT_PRODUCER_ID_API, respond)
