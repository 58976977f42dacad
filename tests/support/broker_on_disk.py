"""A broker id with a real volume: its processes open it, register with the real controller, end.

The machine around them is told: which kernel runs, which pod and claim the volume is mounted for.
Registration goes through the broker's own session and the controller's own decoding, by a link that
may be cut or lose answers.
"""

import asyncio
import contextlib
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from tidemark_broker.log.clean_shutdown import Mount
from tidemark_broker.log.disk import Disk, OsDisk
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import LogSettings, PartitionLog
from tidemark_broker.metadata.controller_channel import (
    Address,
    ControllerChannel,
    ControllerUnavailable,
)
from tidemark_broker.replication.partition_observer import nothing
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_broker.server.config import BrokerConfig
from tidemark_broker.server.epoch_store import LogDirectoryEpochStore
from tidemark_broker.server.lifecycle_manager import (
    BrokerLifecycleManager,
    SessionCallbacks,
    registration_request,
)
from tidemark_operator.controller.http_api import broker_calls
from tidemark_operator.security.broker_identity import BrokerIdentity
from tidemark_protocol.controller_messages import (
    Endpoints,
    RegisterRequest,
    RegisterResponse,
    encode,
)
from tidemark_protocol.ids import BrokerId, Offset

from tests.support.controller_harness import ORDERS, POOL, FakeBroker, Harness
from tests.support.controller_values import shown
from tests.support.log_fixtures import append

CONTROLLER = "controller:8070"
B = BrokerId(1)


@dataclass
class Link:
    """To the rig's controller, in memory."""

    harness: Harness
    sender: BrokerIdentity
    is_cut: bool = False
    loses_responses: bool = False
    answer: object = None  # instead of the controller's
    was_called: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def resolve(self, name: Address) -> list[Address]:
        return [name]

    async def post(self, address: Address, path: str, body: bytes) -> bytes:
        self.was_called.set()
        if self.is_cut:
            raise ControllerUnavailable("cut")
        if self.answer is not None:
            return encode(self.answer)
        response = await broker_calls(self.harness.service)[path](self.sender, body)
        if self.loses_responses:
            raise ControllerUnavailable("the answer was lost")
        return response


@dataclass
class Machine:
    """Where a broker's volume is. Changing a field is what a reboot or a new pod changes."""

    harness: Harness
    broker_id: BrokerId
    path: Path
    boot_id: str = "boot-1"
    pod_uid: str = "pod-1"
    claim_uid: str = "claim-1"
    lives: int = 0

    def open(self, disk: Disk | None = None) -> "Process":
        """A process starts: it opens the volume, and has not spoken to the controller yet."""
        self.lives += 1
        self.path.parent.mkdir(exist_ok=True)
        incarnation = f"{self.path.name}-{self.lives}"
        return Process(self.harness, self.settings(), incarnation, disk or OsDisk())

    def settings(self) -> BrokerConfig:
        return BrokerConfig(
            self.broker_id,
            POOL,
            self.path,
            (CONTROLLER,),
            listen_host="127.0.0.1",
            kafka_port=0,
            claim_uid=self.claim_uid,
            pod_uid=self.pod_uid,
            boot_id=self.boot_id,
        )

    async def start(self) -> "Process":
        """Opened, registered, active."""
        process = self.open()
        await process.register()
        await process.serve()
        return process

    def log_file(self, partition: int = 0) -> Path:
        return self.path / f"orders-{partition}" / f"{0:020d}.log"

    def snapshot(self, to: Path) -> None:
        shutil.copytree(self.path, to)

    def restore(self, snapshot: Path) -> None:
        shutil.rmtree(self.path)
        shutil.copytree(snapshot, self.path)


@dataclass
class Process:
    harness: Harness
    settings: BrokerConfig
    incarnation: str
    disk: Disk
    directory: LogManager = field(init=False)
    voice: FakeBroker | None = None

    def __post_init__(self) -> None:
        self.directory = LogManager.open(
            self.settings.data_directory,
            self.disk,
            broker_id=self.settings.broker_id,
            settings=LogSettings(),
            mount=Mount(self.settings.boot_id, self.settings.pod_uid, self.settings.claim_uid),
        )
        self.directory.secure_logs()
        self.partitions = ReplicaManager(
            self.settings.broker_id,
            scheduler=asyncio.get_running_loop(),
            wall_clock_s=time.time,
        )
        self.link = Link(self.harness, BrokerIdentity(POOL, self.settings.broker_id))
        self.channel = ControllerChannel(
            self.settings.controllers,
            lambda: self.link,
            pool=self.settings.pool,
            broker_id=self.settings.broker_id,
        )
        self.epoch_store = LogDirectoryEpochStore(
            self.directory, self.partitions, record_problem=self.channel.record_problem
        )
        self.session = BrokerLifecycleManager(
            self.channel,
            self.partitions,
            self.directory,
            self.epoch_store,
            make_registration=self.registration,
            callbacks=SessionCallbacks(lambda reason: None, lambda: 0, lambda: 0, lambda: 0.0),
        )
        self.partitions.open(self.directory, submit=nothing, observers=(self.session,))

    def registration(self) -> RegisterRequest:
        nowhere = Endpoints("10.0.0.1", 9092, 8080, "http://x")
        return registration_request(
            self.settings, self.directory, incarnation=self.incarnation, endpoints=nowhere
        )

    async def register(self) -> RegisterResponse:
        await self.channel.start(self.epoch_store)
        return await self.session.register()

    async def register_in_vain(self) -> None:
        """The process sends its registration and is killed before it hears of an answer."""
        registering = asyncio.create_task(self.register())
        await self.link.was_called.wait()
        registering.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await registering
        self.kill()

    async def serve(self) -> None:
        self.voice = FakeBroker(
            self.harness, self.settings.broker_id, self.incarnation, self.session.broker_epoch
        )
        await self.voice.catch_up()

    async def voice_stops(self) -> None:
        """Controlled shutdown: it leads nothing and is in no ISR after this."""
        assert self.voice is not None
        await self.voice.heartbeat(wants_to_stop=True)

    def log(self, partition: int = 0) -> PartitionLog:
        return self.directory.create_log("orders", ORDERS, partition)

    def append(self, *values: bytes, partition: int = 0) -> None:
        append(self.log(partition), *values)

    def stop_cleanly(self) -> None:
        """As a broker does at its end: every log's end is its high watermark."""
        ends = {key: Offset(log.log_end_offset) for key, log in self.directory.logs.items()}
        self.directory.checkpoint_high_watermarks(ends)
        self.directory.write_clean_stop(self.session.broker_epoch)
        self._end()

    def kill(self) -> None:
        """SIGKILL: only the kernel lets go of lock and connections; nothing is written."""
        self._end()

    def _end(self) -> None:
        if self.voice is not None and self.voice.poll is not None:
            self.voice.poll.cancel()
        self.directory.close()


async def with_an_acknowledged_record(path: Path) -> tuple[Harness, Machine, Process]:
    """B is a process with a volume of its own that holds r. A and C are dead: B leads, and C is
    eligible to lead without it."""
    harness = await Harness().start(1)
    machine = Machine(harness, B, path / "volume")
    process = await machine.start()
    assert process.voice is not None
    harness.brokers += [process.voice, await harness.new_broker(2)]
    await harness.create()
    process.append(b"r")
    for broker in (harness.brokers[0], harness.brokers[2]):
        await harness.kill(broker)
    assert shown(harness.partition()) == "leader 1@2 epoch 1 isr [1@2] eligible [2@3] pe 2"
    return harness, machine, process
