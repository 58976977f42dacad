"""The simulated world: brokers, controllers, the API server and the network between them.

`Cluster(seed, options)` is a function: the same seed and options give the same trace, on any
machine.
`timeline.step` runs one callback of one process, or the next event in time. Nothing here judges:
who uses the world looks at the production objects between steps.
"""

import asyncio
import asyncio.events
import copy
import gc
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

from tidemark_broker.replication.follower_session import REPLICA_FETCH_MAX_BYTES
from tidemark_broker.server.config import CheckpointIntervals
from tidemark_operator.api.kinds import PARTITION_SLICE, Object
from tidemark_operator.controller.core.settings import ControllerSettings
from tidemark_operator.security.broker_identity import BrokerIdentity
from tidemark_protocol.ids import BrokerId, TopicId

from tests.simulation.clients.clients import Surroundings as ClientSurroundings
from tests.simulation.clients.desired_topics import DesiredTopic
from tests.simulation.engine.broker_process import BrokerSlot
from tests.simulation.engine.controller_process import TERMINATED_AFTER_US, ControllerSlot
from tests.simulation.engine.costs import Costs, charged_decisions
from tests.simulation.engine.identities import PodIdentities
from tests.simulation.engine.loop import SimulatedLoop
from tests.simulation.engine.messages import MessageFaults
from tests.simulation.engine.network import Network
from tests.simulation.engine.processes import Machine, SimulatedProcess, Surroundings
from tests.simulation.engine.store import SimulatedStore
from tests.simulation.engine.timeline import Timeline

NewClient = Callable[[ClientSurroundings, Random], Any]  # -> what has a `run`

NAMESPACE = "sim"
POOL = f"{NAMESPACE}/default"


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    brokers: int = 3
    controllers: int = 2
    racks: tuple[str, ...] = ()
    stop_limit_seconds: float = 5.0
    high_watermark_checkpoint_seconds: float = 1.0
    recovery_points: CheckpointIntervals = CheckpointIntervals(
        interval_seconds=4.0, appended_bytes=8 * 1024, growth_bytes=500
    )
    log_cleaner_backoff_seconds: float = 15.0
    balance_interval_ms: int = ControllerSettings().balance_interval_ms
    replica_fetch_max_bytes: int = REPLICA_FETCH_MAX_BYTES
    # Like `BrokerEnvironment.serve_http`: what clients of this run speak, beside the health port.
    serve_clients: Callable[[Any, Any, Callable[[int], None]], Coroutine[Any, Any, None]] | None = (
        None
    )
    costs: Costs | None = None  # None: work takes no time
    has_identities: bool = False  # senders have tokens; else they are known by their addresses
    has_logs: bool = False  # production log lines in the trace; slow


@dataclass
class Crash:
    """An exception that no process caught: a defect, whatever the invariants say."""

    now_us: int
    who: str
    error: BaseException


@dataclass
class Cluster(Surroundings):
    seed: int
    options: ClusterOptions = field(default_factory=ClusterOptions)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.timeline = Timeline()
        self.network = Network(self.timeline, self.random)
        self.store = SimulatedStore(self.timeline, self.random)
        self.costs = self.store.costs = self.options.costs
        self.controller_faults = MessageFaults()
        self.trace: list[tuple[int, str, str]] = []
        self.crashes: list[Crash] = []
        self.coverage: Counter[str] = Counter()  # what happened, how often
        self.healed_us: int | None = None
        self.move_bytes_per_second = 0  # as the BrokerPool says; 0: unlimited
        self.applies_again = False  # what is wished, although nothing has changed (I21)
        self.backup: list[dict[str, Any]] = []  # of slices
        self.lost_slices: dict[str, dict[str, Any]] = {}  # deleted by hand, and what to put back
        self.restored_slices: dict[str, None] = {}  # put back by hand; judges take their names
        self.left_alone: dict[str, str] = {}  # deleted topics' slices, put back: name and uid
        self.stalled: dict[BrokerId, None] = {}  # ever, of itself alone
        self.topics: list[DesiredTopic] = []
        self.cut_off_since_us: dict[BrokerId, int] = {}  # from all but clients, as a fault says
        # One more client for this run, made of its surroundings; who has clients says how.
        self.call_client: Callable[[NewClient], None] = lambda make: None
        self.processes: list[SimulatedProcess] = []  # all that ever ran
        self.pool = POOL
        self.namespace = NAMESPACE
        self._process_ids = 0
        self.identities: PodIdentities | None = None
        if self.options.has_identities:
            self.identities = PodIdentities(POOL, self.timeline, self.seed)
            self.identities.on_gone.append(self._notify_of_pod)
        self.controllers = [ControllerSlot(n, self) for n in range(self.options.controllers)]
        self.brokers = {
            BrokerId(number): BrokerSlot(number, self) for number in range(self.options.brokers)
        }

    # ---- a run

    def __enter__(self) -> "Cluster":
        """Garbage collection is off: collecting a dead process's tasks would run their `finally`
        blocks, at a moment that no seed decides."""
        self._had_gc = gc.isenabled()
        gc.disable()
        self._charging = charged_decisions(self.costs)
        self._charging.__enter__()
        self._logging = _Logging(self)
        self._logging.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            for loop in process.loops:
                loop.dispose()
        self._logging.stop()
        self._charging.__exit__(None, None, None)
        if self._had_gc:
            gc.enable()

    def start(self) -> None:
        """Everything at once, as after an installation."""
        for controller in self.controllers:
            controller.start()
        for broker in self.brokers.values():
            broker.start()

    @property
    def is_healed(self) -> bool:
        return self.healed_us is not None

    @property
    def healed_for_us(self) -> int | None:
        return None if self.healed_us is None else self.now_us - self.healed_us

    @property
    def now_us(self) -> int:
        return self.timeline.now_us

    def run_until(self, now_us: int) -> None:
        """All that is due up to that moment."""
        while self.timeline.step(now_us):
            pass
        self.timeline.now_us = max(self.timeline.now_us, now_us)

    def run_for(self, milliseconds: int) -> None:
        self.run_until(self.now_us + milliseconds * 1000)

    # ---- what there is

    @property
    def leading_controller(self) -> ControllerSlot | None:
        """Of those that believe so, the one with the highest controller epoch."""
        leading = [slot for slot in self.controllers if slot.is_leading]
        return max(leading, key=lambda slot: slot.service.controller_epoch, default=None)  # type: ignore[union-attr]

    def controller_hosts(self) -> list[str]:
        return [slot.host for slot in self.controllers]

    def broker_at(self, host: str) -> BrokerIdentity:
        """Return the broker whose pod has or had this address: a sender cannot be another."""
        found = next(slot for slot in self.brokers.values() if slot.is_at(host))
        return BrokerIdentity(self.pool, found.broker_id)

    def spawn(self, name: str, machine: Machine, host: str) -> SimulatedProcess:
        """A process of another kind, a client perhaps; `start` it with its coroutine."""
        return SimulatedProcess(name, machine, host, self, ended=lambda process: None)

    def new_machine(self, name: str) -> Machine:
        return Machine(name, self.timeline, self.network, self.random)

    def new_uuid(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    def create_topic(self, topic: str, **desired_topics: Any) -> DesiredTopic:
        """A Topic object is applied."""
        desired_topic = DesiredTopic(topic, TopicId(str(self.new_uuid())), **desired_topics)
        self.topics.append(desired_topic)
        return desired_topic

    def partitions_of(self, topic: str) -> int:
        """As its user wants them, who may have grown it."""
        return next(
            desired_topic.partitions
            for desired_topic in reversed(self.topics)
            if desired_topic.topic == topic
        )

    def put_back(self, item: dict[str, Any]) -> None:
        """A slice from a backup, by hand. Nothing if its topic was deleted meanwhile."""
        metadata = item["metadata"]
        if any(w.topic_id == item.get("topicId") and w.is_deleted for w in self.topics):
            return
        stored = self.store.get(PARTITION_SLICE, metadata["namespace"], metadata["name"])
        if stored is None:
            self.store.create(PARTITION_SLICE, copy.deepcopy(item))
        else:
            version = stored["metadata"]["resourceVersion"]
            older = {**item, "metadata": {**metadata, "resourceVersion": version}}
            self.store.replace(PARTITION_SLICE, older, status_only=False)
        self.lost_slices.pop(metadata["name"], None)
        self.restored_slices[metadata["name"]] = None
        self.coverage["slices put back"] += 1

    def put_back_lost(self, name: str) -> None:
        if name in self.lost_slices:
            self.put_back(self.lost_slices[name])

    async def is_controller_terminated(self, identity: str) -> bool:
        """What the API server knows of that operator's pod (S19)."""
        return any(
            slot.identity == identity
            and slot.process is None
            and slot.machine.is_up
            and self.now_us - slot.ended_at_us >= TERMINATED_AFTER_US
            for slot in self.controllers
        )

    def on_broker_ended(self, broker: BrokerSlot) -> None:
        """The kubelet tells the API server, whose watch tells the operators."""
        if broker.machine.is_up:
            after_us = self.random.randint(300_000, 1_500_000)
            self.timeline.after(after_us, self.notify_of_trouble, broker)

    def notify_of_trouble(self, broker: BrokerSlot) -> None:
        """Operators hear that its container ended, where the API server's watch reaches them."""
        for slot in self.controllers:
            if slot.name in self.store.out_of_reach:
                continue
            if slot.process is not None and slot.service is not None:
                loop, service = slot.process.loop, slot.service
                loop.call_soon(service.suspect, self.pool, broker.broker_id, "ContainerTerminated")

    def _notify_of_pod(self, uid: str, pod: Object) -> None:
        for slot in self.controllers:
            slot.on_pod_gone(uid, pod)

    # ---- Surroundings

    def next_process_id(self) -> int:
        self._process_ids += 1
        return self._process_ids

    def add_process(self, process: SimulatedProcess) -> None:
        self.processes.append(process)

    def running_process(self) -> str:
        """Whose callback runs now."""
        loop = asyncio.events._get_running_loop()
        return loop.name if isinstance(loop, SimulatedLoop) else "worker"

    def note(self, who: str, what: str) -> None:
        self.trace.append((self.timeline.now_us, who, what))

    def on_crash(self, who: str, error: BaseException) -> None:
        self.crashes.append(Crash(self.now_us, who, error))
        self.note(who, f"not caught: {type(error).__name__}: {error}")

    def trace_digest(self) -> str:
        """Of the trace and of how many steps there were."""
        lines = "\n".join(f"{now_us} {who} {what}" for now_us, who, what in self.trace)
        steps = f"{self.timeline.steps} steps, {self.now_us} us, {self.random.random()}"
        return hashlib.sha256(f"{lines}\n{steps}".encode()).hexdigest()


class _Logging(logging.Handler):
    """Production log lines: silenced, or in the trace."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(logging.INFO)
        self._cluster = cluster
        self._loggers = [
            logging.getLogger("tidemark_broker"),
            logging.getLogger("tidemark_operator"),
        ]
        self._before: list[tuple[int, bool]] = []
        self._disabled = logging.root.manager.disable

    def start(self) -> None:
        if not self._cluster.options.has_logs:
            logging.disable(logging.CRITICAL)
            return
        self._before = [(logger.level, logger.propagate) for logger in self._loggers]
        for logger in self._loggers:
            logger.setLevel(logging.INFO)
            logger.propagate = False
            logger.addHandler(self)

    def stop(self) -> None:
        logging.disable(self._disabled)
        for logger, (level, propagate) in zip(self._loggers, self._before, strict=False):
            logger.removeHandler(self)
            logger.setLevel(level)
            logger.propagate = propagate

    def emit(self, record: logging.LogRecord) -> None:
        fields = {
            name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS
        }
        text = " ".join(f"{name}={value}" for name, value in fields.items())
        if record.exc_info and record.exc_info[1] is not None:
            text += f" {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        self._cluster.note(
            self._cluster.running_process(), f"{record.getMessage()} {text}".rstrip()
        )


_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "taskName"}
