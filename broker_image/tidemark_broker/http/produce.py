"""Serve POST of records: body to record batches, batches to the partitions, one response.

When one other broker leads all records (record_placement.py finds the leaders), 307 to it. Else
those led here are appended here, the others are forwarded (forwarding.py), and the client gets one
response with an entry per record. Nothing is ever sent twice by us; an unknown outcome is reported
as unknown. All checks that reject the whole request come before the first append.
"""

import asyncio
from collections.abc import Callable, Sequence

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import TopicState

from tidemark_broker.http import leadership
from tidemark_broker.http.authentication import require_token
from tidemark_broker.http.broker_view import BrokerView
from tidemark_broker.http.forwarding import Forwarder, ForwardTerms
from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.media_types import format_of_body, is_record_batches
from tidemark_broker.http.partition_write import PartitionWrite
from tidemark_broker.http.problems import HttpProblem
from tidemark_broker.http.produce_bodies import ProducedRecord, ProducerStamp, decode_body
from tidemark_broker.http.produce_results import RecordResult, failed_as, produce_response
from tidemark_broker.http.queries import ProduceQuery, produce_query
from tidemark_broker.http.record_batches import batches_response, offsets_in
from tidemark_broker.http.record_placement import RecordPlacer, TopicPartitions
from tidemark_broker.http.request import Request
from tidemark_broker.http.response import Response


class ProduceRoute:
    def __init__(
        self,
        view: BrokerView,
        limits: HttpLimits,
        forwarder: Forwarder,
        clock_ms: Callable[[], int],
    ) -> None:
        self._view = view
        self._metadata = view.partitions.metadata
        self._limits = limits
        self._forwarder = forwarder
        self._clock_ms = clock_ms
        self._placer = RecordPlacer(self._metadata, view.broker_id)

    async def to_partition(self, request: Request, topic: str, partition_text: str) -> Response:
        query = produce_query(request.query_string, self._limits)
        if is_record_batches(request.content_type):
            return await self._batches_to_partition(request, query, topic, partition_text)
        embedded_format = format_of_body(request.content_type)
        partition = leadership.partition_number(self._metadata, topic, partition_text)
        leadership.require_leader(self._metadata, self._view.broker_id, request, topic, partition)
        state = self._metadata.topics[topic]
        records, producer = await decode_body(
            await request.read_body(self._limits), embedded_format, self._limits
        )
        for index, record in enumerate(records):
            if record.partition is not None and record.partition != partition:
                raise HttpProblem(
                    ErrorCode.INVALID_RECORD,
                    f"body: $.records[{index}].partition: expected none or {partition} as in the "
                    f"path, found {record.partition}",
                )
        write = PartitionWrite(self._view, request, state, partition)
        await write.start(records, query, self._clock_ms(), producer)
        await write.wait(query, self._limits)
        problem = write.problem()
        if problem is not None:
            raise problem
        return produce_response(write.results(), is_forwarded=request.is_forwarded)

    async def _batches_to_partition(
        self, request: Request, query: ProduceQuery, topic: str, partition_text: str
    ) -> Response:
        """Append record batches as the log stores them, without opening or changing them."""
        partition = leadership.partition_number(self._metadata, topic, partition_text)
        leadership.require_leader(self._metadata, self._view.broker_id, request, topic, partition)
        state = self._metadata.topics[topic]
        batches = await request.read_body(self._limits)
        offset_count = offsets_in(batches, self._limits)
        write = PartitionWrite(self._view, request, state, partition)
        write.append(memoryview(batches), query)
        await write.wait(query, self._limits)
        problem = write.problem()
        if problem is not None:
            if problem.error is ErrorCode.CORRUPT_MESSAGE:
                problem.status = 422  # of the client's own making
            raise problem
        return batches_response(partition, write.base_offset(), offset_count)

    async def to_topic(self, request: Request, topic: str) -> Response:
        query = produce_query(request.query_string, self._limits)
        embedded_format = format_of_body(request.content_type)
        state = self._metadata.served_topic(topic)
        if state is None:
            raise leadership.unknown_partition(self._metadata, topic, "")
        deadline = asyncio.get_running_loop().time() + query.timeout_ms / 1000
        records, producer = await decode_body(
            await request.read_body(self._limits), embedded_format, self._limits
        )
        if producer is not None:
            _require_one_partition(records)
        placement = await self._placer.place(state, records)
        if placement.only_leader is not None:
            leader, partition = placement.only_leader
            if not request.is_forwarded:
                raise leadership.redirect(self._metadata, request, leader, topic, partition)
        results = await self._write(request, state, records, placement, query, deadline, producer)
        return produce_response(results, is_forwarded=request.is_forwarded)

    async def _write(
        self,
        request: Request,
        topic: TopicState,
        records: Sequence[ProducedRecord],
        placement: TopicPartitions,
        query: ProduceQuery,
        deadline: float,
        producer: ProducerStamp | None,
    ) -> list[RecordResult]:
        if placement.elsewhere and not request.is_forwarded:
            require_token(request, "records for partitions of several brokers are forwarded")
        results: list[RecordResult | None] = [None] * len(records)
        writes: list[tuple[PartitionWrite, list[int]]] = []
        for partition, places in placement.here.items():
            write = PartitionWrite(self._view, request, topic, partition)
            share = records if len(places) == len(records) else [records[at] for at in places]
            await write.start(share, query, self._clock_ms(), producer)
            writes.append((write, places))
        self._reject(request, topic, placement, results)
        if placement.elsewhere and not request.is_forwarded:
            terms = ForwardTerms(query.acks, deadline, request.client_id, request.authorization)
            async with asyncio.TaskGroup() as group:
                for leader, places in placement.elsewhere.items():
                    group.create_task(
                        self._forward(
                            leader,
                            topic.topic,
                            places,
                            records,
                            placement,
                            terms,
                            results,
                        ),
                        name=f"forward-to-{leader}",
                    )
        for write, places in writes:
            await write.wait(query, self._limits)
            _fill(results, places, write.results())
        complete = [result for result in results if result is not None]
        assert len(complete) == len(records)
        return complete

    def _reject(
        self,
        request: Request,
        topic: TopicState,
        placement: TopicPartitions,
        results: list[RecordResult | None],
    ) -> None:
        """Set the results of records that are neither appended nor forwarded."""
        for partition, places in placement.leaderless.items():
            if self._metadata.has_partition(topic.topic, partition):
                problem = leadership.no_leader(topic.topic, partition)
            else:
                problem = leadership.unknown_partition(self._metadata, topic.topic, str(partition))
            _fill(results, places, [failed_as(partition, problem)] * len(places))
        if request.is_forwarded:
            for leader, places in placement.elsewhere.items():
                for place in places:
                    partition = placement.partitions[place]
                    problem = leadership.led_elsewhere(topic.topic, partition, leader)
                    results[place] = failed_as(partition, problem)

    async def _forward(
        self,
        leader: BrokerId,
        topic: str,
        places: Sequence[int],
        records: Sequence[ProducedRecord],
        placement: TopicPartitions,
        terms: ForwardTerms,
        results: list[RecordResult | None],
    ) -> None:
        broker = self._metadata.brokers[leader]
        forwarded = await self._forwarder.forward(
            leader,
            broker.endpoints,
            topic,
            [(placement.partitions[place], records[place]) for place in places],
            terms,
        )
        _fill(results, places, forwarded)


def _require_one_partition(records: Sequence[ProducedRecord]) -> None:
    """Reject numbered records of more than one partition.

    Sequences are counted per partition, and a retry must reach the partition of the first attempt:
    keyless records go to partitions in turn, and keys move when a topic grows.
    """
    partitions = {record.partition for record in records}
    if len(partitions) > 1 or None in partitions:
        raise HttpProblem(
            ErrorCode.INVALID_RECORD,
            "body: with a producer_id expected the same partition in every record: send one "
            "request per partition to /topics/{topic}/partitions/{partition}",
        )


def _fill(
    results: list[RecordResult | None],
    places: Sequence[int],
    found: Sequence[RecordResult],
) -> None:
    for place, result in zip(places, found, strict=True):
        results[place] = result
