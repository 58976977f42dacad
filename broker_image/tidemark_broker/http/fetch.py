"""Serve records below the high watermark: a bounded long poll, or a stream (record_stream.py).

A poll returns JSON or record batches. `offset` may lie inside a batch: the log returns complete
batches, and what is below is dropped here. A delayed fetch is cancelled when its client
disconnects.
"""

from dataclasses import replace

from tidemark_protocol.access_messages import ResourceKind, Verb
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_BROKER

from tidemark_broker.http import leadership
from tidemark_broker.http.admission import Admission, HttpQuotas
from tidemark_broker.http.broker_view import BrokerView
from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.media_types import (
    RECORD_BATCH_TYPE,
    RESPONSE_BYTES_PER_LOG_BYTE,
    EmbeddedFormat,
    ReadFormat,
    format_of_read,
)
from tidemark_broker.http.pending import Pending
from tidemark_broker.http.problems import HttpProblem, kind_of
from tidemark_broker.http.queries import EARLIEST, LATEST, FetchQuery, fetch_query
from tidemark_broker.http.record_batches import next_offset_of
from tidemark_broker.http.record_json import FetchedRecords, RecordRenderer
from tidemark_broker.http.record_stream import FetchTarget, RecordStreams, positions
from tidemark_broker.http.request import Request
from tidemark_broker.http.response import AnyResponse, Response
from tidemark_broker.quota_manager import QuotaType
from tidemark_broker.replication.replica_manager import FetchResult
from tidemark_broker.replication.results import Consumer

MIN_BYTES = 1


class FetchRoute:
    def __init__(
        self, view: BrokerView, limits: HttpLimits, admission: Admission, quotas: HttpQuotas
    ) -> None:
        self._view = view
        self._partitions = view.partitions
        self._metadata = view.partitions.metadata
        self._limits = limits
        self._admission = admission
        self._quotas = quotas
        self._streams = RecordStreams(self, limits)

    async def records(self, request: Request, topic: str, partition_text: str) -> AnyResponse:
        self._quotas.require(request, QuotaType.FETCH_BYTES)
        query = fetch_query(request.query_string, self._limits)
        read_format = format_of_read(request.accept)
        partition = leadership.partition_number(self._metadata, topic, partition_text)
        if not self._may_read_here(topic, partition, query):
            leadership.require_leader(
                self._metadata, self._view.broker_id, request, topic, partition
            )
        offset = self._offset(request, topic, partition, query)
        reading = FetchTarget(request, topic, partition, query)
        wait_ms = 0 if read_format.is_stream else query.max_wait_ms
        result = await self.read(reading, offset, wait_ms=wait_ms)
        if result.preferred_replica != NO_BROKER:
            preferred = result.preferred_replica
            sent = leadership.preferred_replica(self._metadata, request, partition, preferred)
            if sent is not None:
                return sent
            reading = replace(reading, query=replace(query, consumer=_of_the_leader(query)))
            result = await self.read(reading, offset, wait_ms=wait_ms)
        if read_format.is_stream:
            return self._streams.open(reading, read_format.embedded, offset, result)
        if read_format is ReadFormat.RECORD_BATCHES:
            with self._admission.bytes_reserved(len(result.data)):
                next_offset = await next_offset_of(result.data, offset)
            headers = positions(result, next_offset)
            self.quota_wait_seconds(request, len(result.data))
            return Response(200, result.data, RECORD_BATCH_TYPE, headers)
        fetched = await self.render(reading, read_format.embedded, result.data, offset)
        headers = positions(result, fetched.next_offset)
        self.quota_wait_seconds(request, len(fetched.body))
        return Response(200, fetched.body, read_format.embedded.value, headers)

    async def read(
        self, reading: FetchTarget, offset: int, *, wait_ms: int, max_bytes: int = 0
    ) -> FetchResult:
        """Read from the local replica.

        Raises HttpProblem.
        """
        result = await self._fetch(reading, offset, wait_ms, max_bytes or reading.query.max_bytes)
        if wait_ms:  # the access may have been revoked meanwhile
            await reading.request.require(Verb.CONSUME, ResourceKind.TOPIC, (reading.topic,))
        if result.error is not ErrorCode.NONE:
            raise self._problem(reading.request, reading.topic, reading.partition, offset, result)
        return result

    async def render(
        self,
        reading: FetchTarget,
        embedded: EmbeddedFormat,
        data: bytes,
        offset: int,
        *,
        as_lines: bool = False,
    ) -> FetchedRecords:
        """Render the records that were read.

        Raises HttpProblem.
        """
        renderer = RecordRenderer(
            reading.topic,
            reading.partition,
            embedded,
            most_records=self._limits.records,
            most_decompressed_bytes=self._limits.decompressed_bytes,
            reserve=self._admission.bytes_reserved,
            as_lines=as_lines,
        )
        # Only from here on: a parked fetch holds no bytes.
        with self._admission.bytes_reserved(len(data) * RESPONSE_BYTES_PER_LOG_BYTE):
            try:
                return await renderer.render(data, offset)
            except HttpProblem as problem:
                if problem.error is ErrorCode.CORRUPT_MESSAGE:
                    self._view.crc_failures.note("fetch")
                raise

    def quota_wait_seconds(self, request: Request, size_bytes: int) -> float:
        """Count what was read; return how long its client must wait before the next read."""
        return self._quotas.note(request, QuotaType.FETCH_BYTES, size_bytes)

    def _may_read_here(self, topic: str, partition: int, query: FetchQuery) -> bool:
        """Return whether a follower here may serve; only leaders resolve names such as `latest`."""
        if query.offset < 0 or query.consumer.rack is None:
            return False
        state = self._metadata.partition(topic, partition)
        return state is not None and self._view.broker_id in state.replicas

    def _offset(self, request: Request, topic: str, partition: int, query: FetchQuery) -> int:
        if query.offset >= 0:
            return query.offset
        offsets = self._partitions.offsets(topic, partition)
        has_start = offsets.error in (ErrorCode.NONE, ErrorCode.OFFSET_NOT_AVAILABLE)
        if query.offset == EARLIEST and has_start:
            return offsets.log_start_offset
        if offsets.error is ErrorCode.NONE:
            assert query.offset == LATEST
            return offsets.high_watermark
        result = FetchResult(offsets.error)
        raise self._problem(request, topic, partition, query.offset, result)

    async def _fetch(
        self, reading: FetchTarget, offset: int, wait_ms: int, max_bytes: int
    ) -> FetchResult:
        topic, partition, query = reading.topic, reading.partition, reading.query
        pending: Pending[FetchResult] = Pending()
        cancel = self._partitions.fetch(
            topic,
            partition,
            offset,
            max_bytes=max_bytes,
            min_bytes=MIN_BYTES,
            max_wait_ms=wait_ms,
            done=pending.done,
            # A name such as `latest` only the leader can resolve, so it serves that first read.
            consumer=query.consumer if query.offset >= 0 else _of_the_leader(query),
        )
        pending.prepare()
        if pending.result is None:
            seconds = wait_ms / 1000 + self._limits.response_grace_seconds
            try:
                await pending.wait(reading.request.receive, seconds=seconds, patience_seconds=0.0)
            finally:
                if pending.result is None:
                    cancel()
        if pending.result is None:
            raise HttpProblem(
                ErrorCode.REQUEST_TIMED_OUT,
                f"partition {topic}-{partition}: no result within {wait_ms} ms: try again",
            )
        return pending.result

    def _is_for_the_leader(self, topic: str, partition: int, error: ErrorCode) -> bool:
        """Return whether the leader must answer instead: a follower's log may be shorter."""
        if error in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_NOT_AVAILABLE):
            leader = self._metadata.leader_of(topic, partition)
            return leader is not None and leader.broker_id != self._view.broker_id
        return error is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _problem(
        self, request: Request, topic: str, partition: int, offset: int, result: FetchResult
    ) -> HttpProblem:
        name = f"partition {topic}-{partition}"
        if self._is_for_the_leader(topic, partition, result.error):
            return leadership.leader_for_reader(
                self._metadata, self._view.broker_id, request, topic, partition
            )
        if result.error is not ErrorCode.OFFSET_OUT_OF_RANGE:
            detail = f"{name}: {result.message or kind_of(result.error).title}"
            return HttpProblem(result.error, detail)
        first, last = result.log_start_offset, result.log_end_offset
        if first < 0 or last < 0:
            offsets = self._partitions.offsets(topic, partition)
            first, last = offsets.log_start_offset, offsets.log_end_offset
        return HttpProblem(
            result.error,
            f"{name}: expected an offset from {first} to {last}, found {offset}",
            members={"log_start_offset": first, "log_end_offset": last, "offset": offset},
        )


def _of_the_leader(query: FetchQuery) -> Consumer:
    """Return the same consumer, which reads from the leader only."""
    return replace(query.consumer, rack=None)
