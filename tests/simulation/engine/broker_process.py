"""A broker of the simulated pool: its pods, its volume, and the production process in them.

The kubelet of its machine starts the process again when it ends, after a pause. A forced deletion
gives the broker a new pod at once, with the same volume and another address, while the old process
still runs.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec
from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.metadata.controller_channel import Address, ControllerUnavailable
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_broker.server.broker_server import BrokerServer
from tidemark_broker.server.config import BrokerConfig
from tidemark_broker.server.environment import BrokerEnvironment, HttpBackend
from tidemark_protocol.ids import BrokerId

from tests.simulation.engine.disk_image import DiskImage
from tests.simulation.engine.messages import (
    MessageFaults,
    MessageServer,
    RequestFailed,
    Sender,
    request,
)
from tests.simulation.engine.processes import Machine, SimulatedProcess

if TYPE_CHECKING:
    from tests.simulation.engine.simulated_cluster import Cluster

KAFKA_PORT = 9092
HTTP_PORT = 8080
HEALTH_PATH = "/healthz"
DATA_DIRECTORY = Path("/data")
GROUPS = GroupSettings(min_session_timeout_ms=500, initial_rebalance_delay_ms=200)
CONTROLLERS = "controllers:8070"


class SimulatedTransport:
    """`ControllerTransport`: the broker's requests as messages."""

    def __init__(
        self, controller_hosts: Callable[[], list[str]], token: Callable[[], str] = str
    ) -> None:
        self._controller_hosts = controller_hosts
        self._token = token

    async def start(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def post(self, address: Address, path: str, body: bytes) -> bytes:
        try:
            return await request(address.host, address.port, path, body, self._token())
        except RequestFailed as error:
            raise ControllerUnavailable(str(error)) from error

    async def resolve(self, name: Address) -> list[Address]:
        return [Address(host, name.port) for host in self._controller_hosts()]


class BrokerSlot:
    """One broker identity."""

    def __init__(self, broker_id: int, cluster: "Cluster") -> None:
        self.broker_id = BrokerId(broker_id)
        self.name = f"broker-{broker_id}"
        self.machine = Machine(
            f"node-{broker_id}", cluster.timeline, cluster.network, cluster.random
        )
        self.process: SimulatedProcess | None = None
        self.lives: dict[SimulatedProcess, BrokerServer] = {}  # also of deleted pods that still run
        self.previous: list[SimulatedProcess] = []  # of deleted pods, maybe still running
        self.is_held_down = False  # the kubelet starts nothing
        self.snapshot: DiskImage | None = None  # of the volume
        self._pods = 0
        self._claims = 1
        self._cluster = cluster
        self._new_pod()

    def is_at(self, host: str) -> bool:
        """Return whether one of its pods has, or had, this address."""
        return host.startswith(f"10.0.{self.broker_id}.")

    @property
    def broker(self) -> BrokerServer | None:
        """Of the live process, once it has begun."""
        return None if self.process is None else self.lives.get(self.process)

    @property
    def partitions(self) -> ReplicaManager | None:
        if self.process is None or not self.process.is_alive or self.broker is None:
            return None
        return self.broker.partitions

    def _new_pod(self) -> None:
        self._pods += 1
        self.pod_uid = f"{self.name}-pod-{self._pods}"
        self.host = f"10.0.{self.broker_id}.{self._pods}"
        if self._cluster.identities is not None:
            self._cluster.identities.pod_created(self.broker_id, self.pod_uid, self.host)

    def new_claim(self) -> None:
        """Another volume under the broker's name, and so another pod."""
        self._claims += 1
        self._new_pod()

    # ---- life

    def start(self) -> None:
        """In the present pod; nothing if it runs, or cannot."""
        if self.process is not None or self.is_held_down or not self.machine.is_up:
            return
        cluster = self._cluster
        process = SimulatedProcess(
            f"{self.name}.{self._pods}", self.machine, self.host, cluster, ended=self._ended
        )
        self.process = process
        settings = self._settings()
        environment = self._environment(process)

        async def run() -> int:
            broker = self.lives[process] = BrokerServer(settings, environment)
            return await broker.run()

        process.start(run)
        cluster.note(process.name, f"started in {self.pod_uid} on {self.machine.boot_id}")

    def _ended(self, process: SimulatedProcess) -> None:
        self.lives.pop(process, None)
        if process is not self.process:  # of a deleted pod: nobody starts it again
            self.previous = [previous for previous in self.previous if previous is not process]
            return
        self.process = None
        self._cluster.on_broker_ended(self)
        self.start_later()

    def start_later(self) -> None:
        cluster = self._cluster
        if self.machine.is_up and not self.is_held_down:
            cluster.timeline.after(cluster.random.randint(100_000, 1_500_000), self.start)

    def delete_pod_by_force(self) -> None:
        """The API server forgets the pod; its process runs on, its successor starts at once."""
        if self.process is not None:
            self.previous.append(self.process)
            self.process = None
        self._new_pod()
        self.start()

    # ---- what it is given

    def _settings(self) -> BrokerConfig:
        options = self._cluster.options
        return BrokerConfig(
            broker_id=self.broker_id,
            pool=self._cluster.pool,
            data_directory=DATA_DIRECTORY,
            controllers=(CONTROLLERS,),
            listen_host=self.host,
            advertised_host=self.host,
            kafka_port=KAFKA_PORT,
            http_port=HTTP_PORT,
            rack=options.racks[self.broker_id % len(options.racks)] if options.racks else "",
            claim_uid=f"{self.name}-claim-{self._claims}",
            pod_uid=self.pod_uid,
            boot_id=self.machine.boot_id,
            stop_limit_seconds=options.stop_limit_seconds,
            high_watermark_checkpoint_seconds=options.high_watermark_checkpoint_seconds,
            log_cleaner_backoff_seconds=options.log_cleaner_backoff_seconds,
            recovery_points=options.recovery_points,
            replica_fetch_max_bytes=options.replica_fetch_max_bytes,
            groups=GROUPS,
        )

    def _environment(self, process: SimulatedProcess) -> BrokerEnvironment:
        cluster, pod_uid = self._cluster, self.pod_uid

        def token() -> str:
            identities = cluster.identities
            return "" if identities is None else identities.token_of(self.broker_id, pod_uid)

        return BrokerEnvironment(
            disk=process.disk,
            new_controller_transport=lambda: SimulatedTransport(cluster.controller_hosts, token),
            serve_http=self._serve_http,
            new_uuid=lambda: UUID(int=cluster.random.getrandbits(128), version=4),
            wall_clock_s=lambda: self.machine.clock.wall_us() / 1e6,
            processing_clock_s=lambda: self.machine.clock.wall_us() / 1e6,
            on_serving=lambda: cluster.note(process.name, "serves"),
        )

    async def _serve_http(
        self, broker: HttpBackend, stop: asyncio.Event, on_listening: Callable[[int], None]
    ) -> None:
        """Health for the controller's probe, and whatever the clients of this run speak."""
        cluster = self._cluster
        host, port = broker.settings.listen_host, broker.settings.http_port

        async def health(_: Sender, body: bytes) -> bytes:
            return msgspec.json.encode({"incarnation": broker.incarnation})

        messages = MessageServer({HEALTH_PATH: health}, MessageFaults(), cluster.random)
        server, _ = await messages.start(host, port)
        try:
            async with asyncio.TaskGroup() as tasks:
                clients: asyncio.Task[None] | None = None
                if cluster.options.serve_clients is not None:
                    serving = cluster.options.serve_clients(broker, stop, lambda port: None)
                    clients = tasks.create_task(serving, name="clients")
                on_listening(port)
                await stop.wait()
                if clients is not None:
                    clients.cancel()
        finally:
            server.close()
