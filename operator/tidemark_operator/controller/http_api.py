"""Serve the controller's HTTP API: brokers' messages, health, metrics and status.

A broken connection cancels its handler immediately (`handler_cancellation`): that is how a killed
broker is noticed within milliseconds. Bodies are bounded; a malformed one gets a 400 with the
place. /v1/status has the same JSON in local mode and on Kubernetes. The event log's routes are in
events_api.py. Who may send what is the middleware's to decide (security/authentication.py).
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client.registry import Collector
from tidemark_protocol.controller_messages import (
    ALLOCATE_PRODUCER_IDS_PATH,
    ALTER_PARTITION_PATH,
    HEARTBEAT_PATH,
    MAX_MESSAGE_BYTES,
    REGISTER_PATH,
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    HeartbeatRequest,
    MalformedMessage,
    RegisterRequest,
    encode,
)
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import Member, PartitionState

from tidemark_operator.controller.broker_call import NO_CALLS, BrokerCall, broker_call
from tidemark_operator.controller.core.disk_use import DiskUse
from tidemark_operator.controller.core.views import BrokerView, TopicView
from tidemark_operator.controller.events_api import add_event_routes
from tidemark_operator.controller.metrics import CONTENT_TYPE, exposition
from tidemark_operator.controller.service import ControllerService
from tidemark_operator.security.authentication import broker_of
from tidemark_operator.security.guarded_site import ConnectionGuard

STATUS_PATH = "/v1/status"
PARTITIONS_AT_A_TIME = 500  # in a status


PidOf = Callable[[str, BrokerId], int | None]  # of a pool's broker; local mode knows them


def create_app(
    service: ControllerService,
    *,
    pid_of: PidOf | None = None,
    more_calls: Mapping[str, BrokerCall] = NO_CALLS,
    more_metrics: tuple[Collector, ...] = (),
    middlewares: Sequence[Middleware] = (),
) -> web.Application:
    app = web.Application(client_max_size=MAX_MESSAGE_BYTES, middlewares=middlewares)
    calls = {**broker_calls(service), **more_calls}

    async def called(request: web.Request) -> web.Response:
        try:
            sender = broker_of(request)
            response = await calls[request.path](sender, await _read(request))
        except MalformedMessage as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        return web.Response(body=response, content_type="application/json")

    async def health(_: web.Request) -> web.Response:
        return _json({"leads": service.is_leading, "controllerEpoch": service.controller_epoch})

    async def status(_: web.Request) -> web.Response:
        return _json(await status_of(service, pid_of))

    async def metrics(_: web.Request) -> web.Response:
        body = await exposition(service, *more_metrics)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    for path in calls:
        app.router.add_post(path, called)
    app.router.add_get("/healthz", health)
    app.router.add_get("/readyz", health)  # a standby is ready too: it answers NOT_CONTROLLER
    app.router.add_get("/metrics", metrics)
    app.router.add_get(STATUS_PATH, status)
    add_event_routes(app, service)
    return app


def broker_calls(service: ControllerService) -> dict[str, BrokerCall]:
    """Return the requests that brokers send to the controller itself, by path."""
    return {
        REGISTER_PATH: broker_call(RegisterRequest, service.register),
        HEARTBEAT_PATH: broker_call(HeartbeatRequest, service.heartbeat),
        ALTER_PARTITION_PATH: broker_call(AlterPartitionRequest, service.alter_partition),
        ALLOCATE_PRODUCER_IDS_PATH: broker_call(
            AllocateProducerIdsRequest, service.allocate_producer_ids
        ),
    }


async def serve(
    service: ControllerService,
    listening: socket.socket,
    *,
    pid_of: PidOf | None = None,
    more_calls: Mapping[str, BrokerCall] = NO_CALLS,
    more_metrics: tuple[Collector, ...] = (),
    add_routes: Callable[[web.Application], None] = lambda _: None,
    middlewares: Sequence[Middleware],
    guard: ConnectionGuard,
) -> web.AppRunner:
    """Serve on a socket that is already bound; `cleanup()` of the result ends it.

    `more_calls` are brokers' requests that the controller does not answer itself.
    """
    app = create_app(
        service,
        pid_of=pid_of,
        more_calls=more_calls,
        more_metrics=more_metrics,
        middlewares=middlewares,
    )
    add_routes(app)
    runner = web.AppRunner(
        app,
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=1.0,
        keepalive_timeout=75.0,
    )
    await runner.setup()
    await guard.site(runner, listening).start()
    return runner


async def status_of(service: ControllerService, pid_of: PidOf | None = None) -> dict[str, object]:
    """Return the status; let other tasks run in between."""
    status: dict[str, object] = {
        "leads": service.is_leading,
        "controllerEpoch": service.controller_epoch,
        "leaderAddress": service.leader_address,
    }
    pools: list[object] = []
    for pool in service.pools():
        if not service.is_leading:
            break
        disks = service.disk_uses(pool)
        brokers = [
            _broker_json(view)
            | disk_json(disks.get(view.broker_id))
            | ({"pid": pid_of(pool, view.broker_id)} if pid_of else {})
            for view in service.brokers(pool)
        ]
        topics = [topic async for topic in _topics(service.topics(pool))]
        pools.append({"pool": pool, "brokers": brokers, "topics": topics})
    return status | {"pools": pools}


async def _topics(views: Iterable[TopicView]) -> AsyncIterator[msgspec.Raw]:
    partitions = 0
    for view in views:
        yield msgspec.Raw(encode(_topic_json(view)))
        partitions += 1 + len(view.partitions)
        if partitions >= PARTITIONS_AT_A_TIME:
            partitions = 0
            await asyncio.sleep(0)


async def _read(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(30):  # a body that trickles in is no request
            return await request.read()
    except TimeoutError as error:
        raise web.HTTPRequestTimeout(text="the body did not arrive within 30 s") from error


def _json(value: object) -> web.Response:
    return web.Response(body=encode(value), content_type="application/json")


def _broker_json(view: BrokerView) -> dict[str, object]:
    return {
        "brokerId": view.broker_id,
        "brokerEpoch": view.broker_epoch,
        "state": view.state,
        "rack": view.rack,
        "host": view.endpoints.host,
        "kafkaPort": view.endpoints.kafka_port,
        "httpPort": view.endpoints.http_port,
        "advertisedHttpUrl": view.endpoints.advertised_http_url,
        "incarnation": view.incarnation,
    }


def disk_json(disk: DiskUse | None) -> dict[str, object]:
    """Return the fields of a broker's volume; none before the broker has reported it."""
    if disk is None:
        return {}
    return {
        "diskFreeBytes": disk.free_bytes,
        "diskSizeBytes": disk.size_bytes,
        "diskState": disk.state.value,
    }


def _topic_json(view: TopicView) -> dict[str, object]:
    topic = view.topic
    return {
        "topic": topic.topic,
        "topicId": topic.topic_id,
        "objectName": view.object_name,
        "partitionCount": topic.partition_count,
        "replicationFactor": topic.replication_factor,
        "commitRule": topic.commit_rule,
        "flush": topic.flush,
        "deletionPolicy": view.deletion_policy,
        "retained": view.is_retained,
        "config": topic.config,
        "missingSlices": view.missing_slices,
        "notices": view.notices,
        "partitions": [_partition_json(state) for state in view.partitions],
    }


def _partition_json(state: PartitionState) -> dict[str, object]:
    return {
        "partition": state.partition,
        "replicas": state.replicas,
        "adding": state.adding_replicas,
        "removing": state.removing_replicas,
        "leader": state.leader,
        "leaderBrokerEpoch": state.leader_broker_epoch,
        "leaderEpoch": state.leader_epoch,
        "isr": [_member_json(member) for member in state.in_sync_replicas],
        "eligibleLeaders": [_member_json(member) for member in state.eligible_leaders],
        "partitionEpoch": state.partition_epoch,
        "minIsr": state.min_insync_replicas,
    }


def _member_json(member: Member) -> dict[str, int]:
    return {"id": member.broker_id, "epoch": member.broker_epoch}
