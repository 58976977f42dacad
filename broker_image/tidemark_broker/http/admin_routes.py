"""Serve topics, brokers, offsets, replicas, producer ids and metrics as FastAPI endpoints.

Endpoints are coroutines, so they run on the broker's event loop and not in a thread pool. They
raise HttpProblem as the hot routes do.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Annotated

from fastapi import Path, Query, Request
from fastapi.responses import HTMLResponse, StreamingResponse
from pydantic import ValidationError
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_BROKER
from tidemark_protocol.partition_state import PartitionState

from tidemark_broker.http import leadership, schemas
from tidemark_broker.http.admission import Admission
from tidemark_broker.http.broker_view import BrokerView
from tidemark_broker.http.leadership import client_url
from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.problems import HttpProblem, kind_of, malformed
from tidemark_broker.http.request import Request as HotRequest
from tidemark_broker.http.request_metrics import RequestMetrics
from tidemark_broker.http.route_access import VISIBLE_TOPICS
from tidemark_broker.http.start_page import start_page
from tidemark_broker.http.validation_details import validation_detail
from tidemark_broker.kafka_wire.records.errors import CorruptBatch
from tidemark_broker.metrics.broker_metrics import (
    CONTENT_TYPE,
    MOST_GROUP_OFFSETS,
    BrokerFacts,
    render_group_offsets,
    render_groups,
)
from tidemark_broker.metrics.exposition import MetricsExposition
from tidemark_broker.replication.partition_snapshot import PartitionSnapshot

Topic = Annotated[str, Path(min_length=1, max_length=249)]
PartitionText = Annotated[
    str,
    Path(max_length=10, json_schema_extra={"type": "integer", "minimum": 0, "maximum": 2**31 - 1}),
]
METRICS_CHUNK_BYTES = 256 * 1024  # of one write, so that it does not hold the event loop
_SMALL_BODY = HttpLimits(body_bytes=4096, body_seconds=5.0)
ToOffset = Annotated[int | None, Query(ge=0, le=2**63 - 1)]


class AdminRoutes:
    def __init__(
        self,
        view: BrokerView,
        limits: HttpLimits,
        request_metrics: RequestMetrics,
        admission: Admission,
    ) -> None:
        self._view = view
        self._partitions = view.partitions
        self._metadata = view.partitions.metadata
        self._limits = limits
        self._request_metrics = request_metrics
        self._admission = admission
        self._digests_in_flight = 0
        self._exposition = MetricsExposition(self._snapshots, self._facts, self._other_metrics)

    async def list_topics(self, request: Request) -> schemas.TopicsDocument:
        leadership.require_metadata(self._metadata)
        visible = request.scope.get(VISIBLE_TOPICS, self._metadata.topics)
        served = [name for name in visible if self._metadata.served_topic(name)]
        return schemas.TopicsDocument(topics=sorted(served))

    async def topic(self, topic: Topic) -> schemas.TopicDocument:
        state = self._metadata.served_topic(topic)
        if state is None:
            raise leadership.unknown_partition(self._metadata, topic, "")
        return schemas.TopicDocument(
            name=state.topic,
            topic_id=state.topic_id,
            partition_count=state.partition_count,
            replication_factor=state.replication_factor,
            commit_rule=state.commit_rule,
            flush=state.flush,
            config=state.config,
            partitions=[
                _partition_document(number, self._metadata.partition(topic, number))
                for number in range(state.partition_count)
            ],
        )

    async def partitions(self, topic: Topic) -> list[schemas.PlacedPartitionSchema]:
        """Return leader and replicas of each partition, in the form of the REST Proxy v2."""
        state = self._metadata.served_topic(topic)
        if state is None:
            raise leadership.unknown_partition(self._metadata, topic, "")
        numbers = range(state.partition_count)
        return [_placed(number, self._metadata.partition(topic, number)) for number in numbers]

    async def partition(
        self, topic: Topic, partition: PartitionText
    ) -> schemas.PlacedPartitionSchema:
        number = leadership.partition_number(self._metadata, topic, partition)
        return _placed(number, self._metadata.partition(topic, number))

    async def start_page(self) -> HTMLResponse:
        return HTMLResponse(start_page(self._view))

    async def brokers(self, request: Request) -> schemas.BrokersDocument:
        """Return the brokers of the pool that have an address at the listener of this request."""
        leadership.require_metadata(self._metadata)
        asked = HotRequest(request.scope, request.receive)
        reached = {
            broker_id: client_url(self._metadata, broker_id, asked.listener, has_tls=asked.has_tls)
            for broker_id in sorted(self._metadata.brokers)
        }
        return schemas.BrokersDocument(
            pool=self._view.pool,
            controller_epoch=self._metadata.controller_epoch,
            brokers=[
                schemas.BrokerDocument(
                    broker_id=broker.broker_id,
                    broker_epoch=broker.broker_epoch,
                    http_url=url,
                    host=broker.endpoints.host,
                    kafka_port=broker.endpoints.kafka_port,
                    http_port=broker.endpoints.http_port,
                    rack=broker.rack,
                    is_fenced=broker.is_fenced,
                    is_stopping=broker.is_stopping,
                )
                for broker_id, url in reached.items()
                if url and (broker := self._metadata.brokers[broker_id])
            ],
        )

    async def offsets(
        self, request: Request, topic: Topic, partition: PartitionText
    ) -> schemas.OffsetsDocument:
        hot_request = HotRequest(request.scope, request.receive)
        number = leadership.partition_number(self._metadata, topic, partition)
        broker_id = self._view.broker_id
        leadership.require_leader(self._metadata, broker_id, hot_request, topic, number)
        offsets = self._partitions.offsets(topic, number)
        if offsets.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise leadership.not_leader(self._metadata, broker_id, hot_request, topic, number)
        if offsets.error is not ErrorCode.NONE:
            raise HttpProblem(
                offsets.error, f"partition {topic}-{number}: {kind_of(offsets.error).title}"
            )
        return schemas.OffsetsDocument(
            beginning_offset=offsets.log_start_offset,
            end_offset=offsets.high_watermark,
            log_end_offset=offsets.log_end_offset,
            leader_epoch=offsets.leader_epoch,
        )

    async def replica(
        self, topic: Topic, partition: PartitionText, to_offset: ToOffset = None
    ) -> schemas.ReplicaDocument:
        number = leadership.partition_number(self._metadata, topic, partition)
        replica = self._partitions.replica(topic, number)
        if replica is None:
            raise _no_replica(self._view, topic, number)
        digest = None if to_offset is None else await self._digest(topic, number, to_offset)
        return schemas.ReplicaDocument(
            topic=topic,
            partition=number,
            broker_id=self._view.broker_id,
            role=replica.role,
            log_start_offset=replica.log_start_offset,
            high_watermark=replica.high_watermark,
            log_end_offset=replica.log_end_offset,
            leader_epoch=replica.leader_epoch,
            to_offset=to_offset,
            sha256=digest,
            followers=[
                schemas.FollowerSchema(broker_id=broker_id, log_end_offset=end)
                for broker_id, end in replica.follower_ends
            ],
        )

    async def _digest(self, topic: str, partition: int, to_offset: int) -> str:
        most = self._limits.digests_in_flight
        if self._digests_in_flight >= most:
            raise HttpProblem(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"digests: this broker is at its limit of {most}: try again later",
            )
        self._digests_in_flight += 1
        try:
            async with asyncio.timeout(self._limits.digest_seconds):
                return await self._partitions.replica_digest(topic, partition, to_offset)
        except KeyError:
            raise _no_replica(self._view, topic, partition) from None
        except CorruptBatch as error:
            raise HttpProblem(
                ErrorCode.CORRUPT_MESSAGE, f"digest of {topic}-{partition}: {error}"
            ) from error
        except TimeoutError:
            raise HttpProblem(
                ErrorCode.REQUEST_TIMED_OUT,
                f"digest of {topic}-{partition}: not computed within"
                f" {self._limits.digest_seconds:g} s",
            ) from None
        finally:
            self._digests_in_flight -= 1

    async def init_producer(self, request: Request) -> schemas.ProducerDocument:
        """Return a new producer id with epoch 0, or the id in the body with its next epoch.

        If the id has no epoch left, a new id is returned. Sequences begin at 0 in both cases. Each
        client needs its own id.
        """
        body = await HotRequest(request.scope, request.receive).read_body(_SMALL_BODY)
        producer_id = producer_epoch = -1
        if body:
            try:
                known = schemas.ProducerDocument.model_validate_json(body)
            except ValidationError as error:
                detail = validation_detail({**error.errors()[0]}, "body")
                raise malformed(detail) from error
            producer_id, producer_epoch = known.producer_id, known.producer_epoch
        found = await self._view.producer_ids.init(producer_id, producer_epoch)
        if found.error is not ErrorCode.NONE:
            raise HttpProblem(found.error, found.message)
        return schemas.ProducerDocument(
            producer_id=found.producer_id, producer_epoch=found.producer_epoch
        )

    async def metrics(self, request: Request) -> StreamingResponse:
        is_gzipped = "gzip" in request.headers.get("accept-encoding", "")
        pieces = await self._exposition.rendered(is_gzipped=is_gzipped)
        headers = {"content-type": CONTENT_TYPE.decode()}
        if is_gzipped:
            headers["content-encoding"] = "gzip"
        return StreamingResponse(_each(pieces), headers=headers)

    def _snapshots(self) -> Iterator[PartitionSnapshot]:
        retained = self._metadata.retained
        for cut in self._partitions.snapshots():
            yield replace(cut, is_retained=True) if cut.topic_id in retained else cut

    def _facts(self) -> BrokerFacts:
        view = self._view
        return BrokerFacts(
            broker_id=view.broker_id,
            broker_epoch=view.partitions.broker_epoch,
            pool=view.pool,
            rack=view.rack,
            profile=view.metrics_profile,
            fsyncs=view.fsyncs(),
            loop_lag=view.loop_lag,
            disk_space=view.partitions.disk_space,
            certificate_end_s=view.certificate_end_s(),
            client_authorities_end_s=view.client_authorities_end_s(),
        )

    def _other_metrics(self) -> tuple[Iterator[str], ...]:
        view = self._view
        gauges, offsets = view.group_gauges(), view.group_offsets(MOST_GROUP_OFFSETS)
        return (
            view.crc_failures.render(),
            render_groups(gauges, view.group_counts, view.metrics_profile),
            render_group_offsets(offsets, gauges.offsets, view.metrics_profile),
            view.kafka_requests.render(),
            view.client_connections.render(),
            view.rejections.render(),
            self._request_metrics.render(self._admission.requests_in_flight),
        )


async def _each(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), METRICS_CHUNK_BYTES):
            yield piece[start : start + METRICS_CHUNK_BYTES]


def _partition_document(number: int, state: PartitionState | None) -> schemas.PartitionDocument:
    if state is None:  # withheld while the outcome of its last write is unknown (S3)
        return schemas.PartitionDocument(
            partition=number,
            leader=NO_BROKER,
            leader_epoch=-1,
            partition_epoch=-1,
            replicas=[],
            in_sync_replicas=[],
            eligible_leaders=[],
            min_insync_replicas=-1,
        )
    return schemas.PartitionDocument(
        partition=state.partition,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        replicas=list(state.replicas),
        in_sync_replicas=[member.broker_id for member in state.in_sync_replicas],
        eligible_leaders=[member.broker_id for member in state.eligible_leaders],
        min_insync_replicas=state.min_insync_replicas,
    )


def _placed(number: int, state: PartitionState | None) -> schemas.PlacedPartitionSchema:
    if state is None:  # withheld while the outcome of its last write is unknown (S3)
        return schemas.PlacedPartitionSchema(partition=number, leader=NO_BROKER, replicas=[])
    in_sync = {member.broker_id for member in state.in_sync_replicas}
    return schemas.PlacedPartitionSchema(
        partition=number,
        leader=state.leader,
        replicas=[
            schemas.PlacedReplicaSchema(
                broker=broker_id,
                leader=broker_id == state.leader,
                in_sync=broker_id in in_sync,
            )
            for broker_id in state.replicas
        ],
    )


def _no_replica(view: BrokerView, topic: str, partition: int) -> HttpProblem:
    return HttpProblem(
        ErrorCode.REPLICA_NOT_AVAILABLE,
        f"partition {topic}-{partition}: broker {view.broker_id} has no replica of it: "
        f"GET /topics/{topic}/partitions/{partition} lists the replicas",
        status=404,
    )
