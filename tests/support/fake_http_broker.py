"""A hand-written fake of brokers' HTTP API: several brokers over one set of logs, on loopback."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from tidemark_broker.kafka_wire.records.record_batch import (
    BatchHeader,
    NewRecord,
    Record,
    build_batch,
    check_crc,
    read_header,
    read_records,
)

TOPIC = "orders"
Response = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ProducedBatch:
    """The batch of a produce request."""

    def __init__(self, data: bytes) -> None:
        self.header: BatchHeader = read_header(data)
        check_crc(self.header, memoryview(data))
        assert self.header.size_bytes == len(data), "a request has one batch"
        self.records: list[Record] = list(read_records(memoryview(data)))

    @property
    def values(self) -> list[bytes]:
        return [record.value or b"" for record in self.records]


async def batch_of(request: web.Request) -> bytes:
    """The batch of a request, made here where it has JSON (`tidemark bench http`)."""
    if "json" not in request.content_type:
        return await request.read()
    values = [base64.b64decode(record["value"]) for record in (await request.json())["records"]]
    return build_batch([NewRecord(None, value) for value in values], timestamp_ms=1)


@dataclass
class FakeCluster:
    """Every broker answers from the same state; `next_responses` come first, once each."""

    broker_count: int = 2
    partition_count: int = 1
    leaders: dict[int, int] = field(default_factory=dict)
    leader_epoch: int = 0
    logs: dict[int, list[bytes]] = field(default_factory=dict)
    next_responses: list[Response] = field(default_factory=list)
    produced_at: list[int] = field(default_factory=list)
    nearest: dict[str, int] = field(default_factory=dict)  # rack -> broker that its readers go to
    silent: set[int] = field(default_factory=set)  # brokers that hang when asked who leads
    read_at: list[int] = field(default_factory=list)
    replica_bytes: dict[tuple[int, int], str] = field(default_factory=dict)
    topic_id: str = "first"
    is_deleted: bool = False
    rejected_reads: int = 0  # while it was deleted
    kafka_port: int = 0
    log_start: int = 0
    page_records: int = 10_000
    most_batch_bytes: int | None = None  # of values
    bad_values: set[bytes] = field(default_factory=set)  # a batch with one of them is refused
    batches: list[ProducedBatch] = field(default_factory=list)  # of produce requests
    next_producer_id: int = 4000
    # (partition, producer id) -> epoch, next sequence, and the offset of each batch of that epoch
    producers: dict[tuple[int, int], tuple[int, int, dict[int, int]]] = field(default_factory=dict)
    servers: list[TestServer] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)  # also of those that were killed

    async def __aenter__(self) -> "FakeCluster":
        for partition in range(self.partition_count):
            self.leaders.setdefault(partition, partition % self.broker_count)
            self.logs.setdefault(partition, [])
        for broker_id in range(self.broker_count):
            server = TestServer(self._app(broker_id), host="127.0.0.1")
            await server.start_server()
            self.servers.append(server)
            self.urls.append(str(server.make_url("")).rstrip("/"))
        return self

    async def __aexit__(self, *reason: object) -> None:
        for server in self.servers:
            await server.close()

    def url(self, broker_id: int) -> str:
        return self.urls[broker_id]

    def elect(self, partition: int, leader: int) -> None:
        self.leaders[partition] = leader
        self.leader_epoch += 1

    async def kill(self, broker_id: int) -> None:
        await self.servers[broker_id].close()

    def topic_body(self) -> dict[str, Any]:
        replicas = list(range(self.broker_count))
        return {
            "name": TOPIC,
            "topic_id": self.topic_id,
            "partitions": [
                {
                    "partition": partition,
                    "leader": leader,
                    "leader_epoch": self.leader_epoch,
                    "partition_epoch": self.leader_epoch,
                    "replicas": replicas,
                    "in_sync_replicas": replicas,
                }
                for partition, leader in sorted(self.leaders.items())
            ],
        }

    def _app(self, broker_id: int) -> web.Application:
        partition_path = "/topics/{topic}/partitions/{partition}"

        def at_leader(handler: Response) -> Response:
            async def checked(request: web.Request) -> web.StreamResponse:
                partition = int(request.match_info["partition"])
                if self.is_deleted:
                    return unknown_topic()
                if self.leaders[partition] != broker_id:
                    leader_url = self.url(self.leaders[partition])
                    raise web.HTTPTemporaryRedirect(leader_url + request.path_qs)
                return await handler(request)

            return checked

        async def produce(request: web.Request) -> web.StreamResponse:
            self.produced_at.append(broker_id)
            if self.next_responses:
                return await self.next_responses.pop(0)(request)
            batch = ProducedBatch(await batch_of(request))
            self.batches.append(batch)
            rejection = self._rejection(batch)
            return rejection or self.append(int(request.match_info["partition"]), batch)

        async def topic(request: web.Request) -> web.StreamResponse:
            await self._hang_if_silent(broker_id)
            if request.match_info["topic"] != TOPIC or self.is_deleted:
                return unknown_topic()
            return web.json_response(self.topic_body())

        async def brokers(request: web.Request) -> web.StreamResponse:
            listed = [
                {
                    "broker_id": number,
                    "broker_epoch": 1,
                    "http_url": url,
                    "host": "127.0.0.1",
                    "kafka_port": self.kafka_port,
                    "is_fenced": False,
                    "is_stopping": False,
                }
                for number, url in enumerate(self.urls)
            ]
            return web.json_response({"pool": "shop/default", "brokers": listed})

        async def topics(request: web.Request) -> web.StreamResponse:
            return web.json_response({"topics": [TOPIC]})

        async def replica(request: web.Request) -> web.StreamResponse:
            partition = int(request.match_info["partition"])
            return web.json_response(self._replica(broker_id, partition))

        app = web.Application(client_max_size=9 * 1024 * 1024)
        app.router.add_get("/brokers", brokers)
        app.router.add_post("/producers", self._init_producer)
        app.router.add_get("/topics", topics)
        app.router.add_get("/topics/{topic}", topic)
        app.router.add_post(partition_path, at_leader(produce))
        app.router.add_get(partition_path + "/records", self._reading_at(broker_id))
        app.router.add_get(partition_path + "/offsets", at_leader(self._offsets))
        app.router.add_get(partition_path + "/replica", replica)
        return app

    def _reading_at(self, broker_id: int) -> Response:
        async def records(request: web.Request) -> web.StreamResponse:
            if self.is_deleted:
                self.rejected_reads += 1
                return unknown_topic()
            partition = int(request.match_info["partition"])
            nearest = self.nearest.get(request.query.get("rack", ""), self.leaders[partition])
            self.read_at.append(broker_id)
            if broker_id not in (nearest, self.leaders[partition]):
                raise web.HTTPTemporaryRedirect(self.url(self.leaders[partition]))
            if broker_id != nearest:
                raise web.HTTPTemporaryRedirect(
                    self.url(nearest) + request.path_qs,
                    headers={"Tidemark-Preferred-Read-Replica": str(nearest)},
                )
            return await self._records(request)

        return records

    async def _hang_if_silent(self, broker_id: int) -> None:
        if broker_id in self.silent:
            await asyncio.Event().wait()

    def append(self, partition: int, batch: ProducedBatch) -> web.Response:
        log = self.logs[partition]
        offset = len(log)
        if batch.header.producer_id >= 0:
            found = self._checker(partition, batch, offset)
            if not isinstance(found, int):
                return found
            if found < offset:
                return web.json_response({"offsets": [{"partition": partition, "offset": found}]})
        log += batch.values
        offsets = [{"partition": partition, "offset": offset + n} for n in range(len(log) - offset)]
        return web.json_response({"offsets": offsets})

    def _rejection(self, batch: ProducedBatch) -> web.Response | None:
        values = batch.values
        if self.bad_values.intersection(values):
            return problem(422, "INVALID_RECORD", outcome="not_written")
        size_bytes = sum(map(len, values))
        if self.most_batch_bytes is not None and size_bytes > self.most_batch_bytes:
            return problem(413, "MESSAGE_TOO_LARGE", outcome="not_written")
        return None

    def _checker(self, partition: int, batch: ProducedBatch, end: int) -> int | web.Response:
        """The offset of the batch, old or new, or why not."""
        key = (partition, batch.header.producer_id)
        epoch, sequence = batch.header.producer_epoch, batch.header.base_sequence
        known_epoch, expected, offsets = self.producers.get(key, (-1, 0, {}))
        if epoch > known_epoch:
            expected, offsets = 0, {}
            if known_epoch < 0 and sequence:
                return problem(409, "UNKNOWN_PRODUCER_ID", outcome="not_written")
        if epoch < known_epoch:
            return problem(409, "INVALID_PRODUCER_EPOCH", outcome="unknown")
        if sequence in offsets:
            return offsets[sequence]
        if sequence != expected:
            return problem(409, "OUT_OF_ORDER_SEQUENCE_NUMBER", outcome="unknown")
        offsets[sequence] = end
        self.producers[key] = (epoch, sequence + len(batch.records), offsets)
        return end

    async def _init_producer(self, request: web.Request) -> web.StreamResponse:
        if await request.read():
            known = await request.json()
            return web.json_response(known | {"producer_epoch": known["producer_epoch"] + 1})
        self.next_producer_id += 1
        return web.json_response({"producer_id": self.next_producer_id, "producer_epoch": 0})

    def append_and_hang_up(self) -> Response:
        """Written, and the answer is lost."""

        async def answer(request: web.Request) -> web.StreamResponse:
            self.append(int(request.match_info["partition"]), ProducedBatch(await request.read()))
            return await hang_up(request)

        return answer

    async def _records(self, request: web.Request) -> web.StreamResponse:
        partition = int(request.match_info["partition"])
        offset = int(request.query["offset"])
        log = self.logs[partition]
        if not self.log_start <= offset <= len(log):
            return problem(416, "OFFSET_OUT_OF_RANGE", outcome=None)
        if offset >= len(log):
            await asyncio.sleep(min(0.02, int(request.query["max_wait_ms"]) / 1000))
        records = [
            {
                "topic": TOPIC,
                "partition": partition,
                "offset": number,
                "timestamp": 1,
                "key": None,
                "value": base64.b64encode(value).decode(),
            }
            for number, value in enumerate(log)
            if offset <= number < offset + self.page_records
        ]
        headers = {
            "Tidemark-High-Watermark": str(len(log)),
            "Tidemark-Next-Offset": str(offset + len(records)),
            "Tidemark-Topic-Id": self.topic_id,
        }
        return web.json_response(records, headers=headers)

    async def _offsets(self, request: web.Request) -> web.StreamResponse:
        end = len(self.logs[int(request.match_info["partition"])])
        return web.json_response({"beginning_offset": self.log_start, "end_offset": end})

    def _replica(self, broker_id: int, partition: int) -> dict[str, Any]:
        end = len(self.logs[partition])
        return {
            "topic": TOPIC,
            "partition": partition,
            "broker_id": broker_id,
            "role": "leader" if self.leaders[partition] == broker_id else "follower",
            "log_start_offset": 0,
            "high_watermark": end,
            "log_end_offset": end,
            "leader_epoch": self.leader_epoch,
            "to_offset": end,
            "sha256": self.replica_bytes.get((broker_id, partition), "same"),
        }


def problem(
    status: int, error: str, *, outcome: str | None, retriable: bool = False
) -> web.Response:
    body: dict[str, Any] = {
        "type": "about:blank",
        "status": status,
        "detail": f"detail of {error}",
        "error": error,
        "retriable": retriable,
    }
    if outcome is not None:
        body["outcome"] = outcome
    return web.json_response(body, status=status, content_type="application/problem+json")


def unknown_topic() -> web.Response:
    return problem(404, "UNKNOWN_TOPIC_OR_PARTITION", outcome="not_written", retriable=True)


def answering(reply: Callable[[], web.Response]) -> Response:
    async def answer(request: web.Request) -> web.StreamResponse:
        return reply()

    return answer


async def hang_up(request: web.Request) -> web.StreamResponse:
    """The connection is cut after the request was read: its outcome is unknown."""
    await request.read()
    assert request.transport is not None
    request.transport.abort()
    return web.Response()
