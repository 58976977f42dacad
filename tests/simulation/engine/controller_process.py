"""An operator of the simulated cluster: ControllerService, its Lease, and the wishes for topics.

Production code but for the reconcilers; what Topic objects would ask for: desired_topics.py. The
Lease has a loop of its own, as in production a thread.
"""

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec
from tidemark_operator.api.kinds import Object
from tidemark_operator.controller.broker_call import BrokerCall
from tidemark_operator.controller.clock import MonotonicClock
from tidemark_operator.controller.http_api import broker_calls
from tidemark_operator.controller.probe import ProbeVerdict
from tidemark_operator.controller.service import (
    ControllerService,
    ControllerSettings,
)
from tidemark_operator.manager.lease_thread import LeaderOnLoop
from tidemark_operator.store.lease import ControllerLease, LeaseSettings
from tidemark_protocol.controller_messages import Endpoints
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.loop_lag import LoopLag

from tests.simulation.clients.desired_topics import keep_topics
from tests.simulation.engine.broker_process import HEALTH_PATH
from tests.simulation.engine.clock import MachineClock
from tests.simulation.engine.identities import SenderIdentities
from tests.simulation.engine.messages import (
    Handler,
    MessageServer,
    RequestFailed,
    Sender,
    request,
)
from tests.simulation.engine.processes import Machine, SimulatedProcess

if TYPE_CHECKING:
    from tests.simulation.engine.simulated_cluster import Cluster

CONTROLLER_PORT = 8070
TERMINATED_AFTER_US = 500_000  # until the kubelet has said so


class LeaseClock:
    def __init__(self, clock: MachineClock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.monotonic_us() // 1000

    def wall_time(self) -> str:
        moment = datetime.fromtimestamp(self._clock.wall_us() / 1e6, UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class MessageProbe:
    """`Probe`, with HttpProbe's verdicts."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms

    async def __call__(
        self, pool: str, broker_id: BrokerId, endpoints: Endpoints, incarnation: str
    ) -> ProbeVerdict:
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                body = await request(endpoints.host, endpoints.http_port, HEALTH_PATH, b"")
        except ConnectionRefusedError:
            return ProbeVerdict.REFUSED
        except (TimeoutError, OSError, RequestFailed):
            return ProbeVerdict.NO_RESPONSE
        found = msgspec.json.decode(body)["incarnation"]
        return ProbeVerdict.ALIVE if found == incarnation else ProbeVerdict.REFUSED


class ControllerSlot:
    """One replica of the operator's Deployment."""

    def __init__(self, number: int, cluster: "Cluster") -> None:
        self.name = f"controller-{number}"
        self.host = f"10.1.{number}.1"
        self.machine = Machine(self.name, cluster.timeline, cluster.network, cluster.random)
        self.machine.add_host(self.host)
        self.process: SimulatedProcess | None = None
        self.service: ControllerService | None = None  # of the live process
        self.lease: ControllerLease | None = None
        self.senders: SenderIdentities | None = None  # in runs with identities
        self.ended_at_us = 0
        self.is_held_down = False
        self._cluster = cluster

    @property
    def identity(self) -> str:
        return f"{self.name}/{self.name}-uid"

    @property
    def is_leading(self) -> bool:
        return self.service is not None and self.service.is_leading

    def start(self) -> None:
        if self.process is not None or self.is_held_down or not self.machine.is_up:
            return
        process = SimulatedProcess(
            self.name, self.machine, self.host, self._cluster, ended=self._ended
        )
        self.process = process
        process.start(self._run)
        self._cluster.note(self.name, "started")

    def _ended(self, process: SimulatedProcess) -> None:
        self.process = self.service = self.lease = self.senders = None
        self.ended_at_us = self._cluster.timeline.now_us
        self.start_later()

    def start_later(self) -> None:
        cluster = self._cluster
        if self.machine.is_up and not self.is_held_down:
            cluster.timeline.after(cluster.random.randint(300_000, 2_000_000), self.start)

    def _identified(self, call: BrokerCall) -> Handler:
        """Return the call by who sends a message: its token says it, or its host in other runs."""
        senders = self.senders

        async def answer(sender: Sender, body: bytes) -> bytes:
            if senders is None:
                return await call(self._cluster.broker_at(sender.host), body)
            return await call(await senders.of(sender), body)

        return answer

    def _new_senders(self) -> SenderIdentities | None:
        identities, store = self._cluster.identities, self._cluster.store.client(self.name)
        if identities is None:
            return None
        return SenderIdentities(
            identities,
            store.delayed,
            monotonic_s=asyncio.get_running_loop().time,
            wall_s=lambda: self.machine.clock.wall_us() / 1e6,
        )

    def has_seen_token_of(self, pod_uid: str) -> bool:
        return self.senders is not None and pod_uid in self.senders.with_token

    def on_pod_gone(self, uid: str, pod: Object) -> None:
        """Tell the operator that a pod is deleted, unless it cannot reach the API server."""
        if self.senders is not None and self.name not in self._cluster.store.out_of_reach:
            self.senders.on_pod_gone(uid, pod)

    async def _run(self) -> int:
        cluster = self._cluster
        address = f"{self.host}:{CONTROLLER_PORT}"
        store = cluster.store.client(self.name)
        settings = ControllerSettings(
            advertised_address=address, balance_interval_ms=cluster.options.balance_interval_ms
        )
        service = ControllerService(
            store,
            settings=settings,
            clock=MonotonicClock(),
            wall_clock_ms=lambda: self.machine.clock.wall_us() // 1000,
            probe=MessageProbe(settings.probe_timeout_ms),
            on_change=lambda change: None,
            new_uuid=lambda: UUID(int=cluster.random.getrandbits(128), version=4),
        )
        loop = asyncio.get_running_loop()
        lag = LoopLag(loop.time)
        lease = ControllerLease(
            store,
            self.identity,
            address,
            leader=LeaderOnLoop(service, loop, lag),
            clock=LeaseClock(self.machine.clock),
            settings=LeaseSettings(cluster.namespace),
            is_holder_terminated=cluster.is_controller_terminated,
        )
        self.service, self.lease = service, lease
        self.senders = self._new_senders()
        calls = {path: self._identified(call) for path, call in broker_calls(service).items()}
        messages = MessageServer(calls, cluster.controller_faults, cluster.random)
        await messages.start(self.host, CONTROLLER_PORT)
        stop = asyncio.Event()
        loop.add_signal_handler(15, stop.set)
        async with asyncio.TaskGroup() as tasks:
            assert self.process is not None
            leading = tasks.create_task(self.process.run_thread("lease", lease.run()), name="lease")
            beats = tasks.create_task(lag.run(), name="loop lag")
            topics = tasks.create_task(keep_topics(cluster, self.name, service), name="topics")
            await stop.wait()
            for task in (leading, beats, topics):
                task.cancel()
        return 0
