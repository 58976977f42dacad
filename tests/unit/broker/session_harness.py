"""A session and a controller made of a few lines, over real HTTP on loopback."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import LogSettings
from tidemark_broker.metadata.controller_channel import ControllerChannel, HttpTransport
from tidemark_broker.replication.partition_observer import nothing
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_broker.server.epoch_store import LogDirectoryEpochStore
from tidemark_broker.server.lifecycle_manager import (
    BrokerLifecycleManager,
    SessionCallbacks,
)
from tidemark_protocol.controller_messages import (
    ALLOCATE_PRODUCER_IDS_PATH,
    HEARTBEAT_PATH,
    REGISTER_PATH,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    Endpoints,
    HeartbeatRequest,
    HeartbeatResponse,
    RegisterRequest,
    RegisterResponse,
    StorageIdentity,
    decode,
    encode,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
)
from tidemark_protocol.topic_messages import (
    CREATE_TOPICS_PATH,
    TopicsResponse,
)

from tests.support.faulty_disk import FaultyDisk
from tests.support.waiting import HANG_SECONDS, eventually

REGISTERED = RegisterResponse(
    ErrorCode.NONE,
    controller_epoch=ControllerEpoch(5),
    broker_epoch=BrokerEpoch(7),
    cluster_id="c1",
)
SERVING = HeartbeatResponse(ErrorCode.NONE, controller_epoch=ControllerEpoch(5), is_fenced=False)


class FakeController:
    """Answers registrations from a list; keeps polls open until the test answers them."""

    def __init__(self) -> None:
        self.registrations: list[RegisterResponse] = []
        self.registered: list[RegisterRequest] = []
        self.polls: list[tuple[HeartbeatRequest, asyncio.Future[HeartbeatResponse]]] = []
        self.blocks: list[AllocateProducerIdsResponse] = []
        self.topics_requested = 0
        self.topics_response: asyncio.Future[TopicsResponse] | None = None
        self.port = 0

    async def start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_post(REGISTER_PATH, self._register)
        app.router.add_post(HEARTBEAT_PATH, self._heartbeat)
        app.router.add_post(ALLOCATE_PRODUCER_IDS_PATH, self._allocate)
        app.router.add_post(CREATE_TOPICS_PATH, self._create_topics)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        return runner

    async def _register(self, request: web.Request) -> web.Response:
        self.registered.append(decode(await request.read(), RegisterRequest))
        response = self.registrations.pop(0) if self.registrations else REGISTERED
        return web.Response(body=encode(response))

    async def _allocate(self, request: web.Request) -> web.Response:
        requested = decode(await request.read(), AllocateProducerIdsRequest)
        assert requested == AllocateProducerIdsRequest("ns/p", BrokerId(1), BrokerEpoch(7))
        return web.Response(body=encode(self.blocks.pop(0)))

    async def _create_topics(self, request: web.Request) -> web.Response:
        self.topics_requested += 1
        assert self.topics_response is not None
        return web.Response(body=encode(await asyncio.shield(self.topics_response)))

    async def _heartbeat(self, request: web.Request) -> web.Response:
        future: asyncio.Future[HeartbeatResponse] = asyncio.get_running_loop().create_future()
        self.polls.append((decode(await request.read(), HeartbeatRequest), future))
        return web.Response(body=encode(await future))

    def answer(self, index: int, response: HeartbeatResponse = SERVING) -> None:
        self.polls[index][1].set_result(response)


class Harness:
    def __init__(self, path: Path, controllers: tuple[str, ...]) -> None:
        self.disk = FaultyDisk()
        self.directory = LogManager.open(
            path, self.disk, broker_id=BrokerId(1), settings=LogSettings()
        )
        self.partitions = ReplicaManager(
            BrokerId(1), scheduler=asyncio.get_running_loop(), wall_clock_s=time.time
        )
        self.channel = ControllerChannel(
            controllers, HttpTransport, pool="ns/p", broker_id=BrokerId(1)
        )
        self.epoch_store = LogDirectoryEpochStore(
            self.directory, self.partitions, record_problem=self.channel.record_problem
        )
        self.stale: list[str] = []
        self.session = BrokerLifecycleManager(
            self.channel,
            self.partitions,
            self.directory,
            self.epoch_store,
            make_registration=self.registration,
            callbacks=SessionCallbacks(self.stale.append, lambda: 0, lambda: 0, lambda: 0.0),
        )
        self.partitions.open(self.directory, submit=nothing, observers=(self.session,))

    def registration(self) -> RegisterRequest:
        return RegisterRequest(
            "ns/p",
            BrokerId(1),
            self.directory.cluster_id,
            "incarnation",
            Endpoints("127.0.0.1", 1, 2, "http://b1"),
            "",
            StorageIdentity(self.directory.directory_id),
            self.directory.clean_stop_epoch,
            self.directory.highest_controller_epoch,
            self.directory.highest_broker_epoch,
            -1,
        )


def run(
    path: Path,
    scenario: Callable[[FakeController, Harness], Awaitable[None]],
    *,
    extra_addresses: tuple[str, ...] = (),
) -> None:
    async def main() -> None:
        async with asyncio.timeout(HANG_SECONDS):
            controller = FakeController()
            runner = await controller.start()
            harness = Harness(path, (*extra_addresses, f"127.0.0.1:{controller.port}"))
            await harness.channel.start(harness.epoch_store)
            try:
                await scenario(controller, harness)
            finally:
                await harness.channel.close()
                for _, future in controller.polls:
                    future.cancel()
                await runner.cleanup()
                harness.directory.close()

    asyncio.run(main())


async def polling(
    controller: FakeController, harness: Harness, scenario: Callable[[], Awaitable[None]]
) -> None:
    await harness.session.register()
    task = asyncio.ensure_future(harness.session.run())
    try:
        await eventually(lambda: len(controller.polls) == 1)
        await scenario()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
