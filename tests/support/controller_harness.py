"""A ControllerService on a fake store, a fake clock and a probe that says what it is told.

No real time: `advance` moves the clock a tick at a time and lets decisions end."""

import asyncio
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidemark_operator.api.kinds import PARTITION_SLICE, Object, ResourceKind
from tidemark_operator.controller.core.placement import place
from tidemark_operator.controller.service import (
    ControllerService,
    ControllerSettings,
    ProbeVerdict,
    StateChange,
)
from tidemark_operator.store.object_store import (
    AlreadyExists,
    Conflict,
    NamespaceTerminating,
    NotFound,
    OutcomeUnknown,
    Rejected,
    StoreError,
)
from tidemark_protocol.controller_messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    Endpoints,
    HeartbeatRequest,
    HeartbeatResponse,
    IsrProposal,
    RegisterRequest,
    RegisterResponse,
    ReplicaReport,
    StorageIdentity,
)
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import PartitionState, TopicState

from tests.support.waiting import HANG_SECONDS

POOL = "shop/default"
ORDERS = TopicId("7f1c0000-0000-0000-0000-000000000001")
TICK_MS = 50
WALL_CLOCK_MS = 1_700_000_000_000


class FakeClock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


class FakeStore:
    """Compare-and-set in memory. `faults`: what the next writes of a kind meet, in order: "lost"
    loses the answer and the write, "landed" only the answer, "conflict", "refused" and
    "namespace gone" refuse."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.version = 0
        self.writes = 0
        self.faults: dict[str, list[str]] = {}
        self.is_down = False

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        self._check_up()
        return copy.deepcopy(self.objects.get((kind.kind, namespace, name)))

    async def list(
        self, kind: ResourceKind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        self._check_up()
        return [copy.deepcopy(v) for k, v in sorted(self.objects.items()) if k[0] == kind.kind]

    async def create(self, kind: ResourceKind, item: Object) -> Object:
        key = self._key(kind, item)
        if key in self.objects:
            raise AlreadyExists(str(key))
        return self._write(kind, item)

    async def replace(self, kind: ResourceKind, item: Object) -> Object:
        stored = self.objects.get(self._key(kind, item))
        if stored is None:
            raise NotFound(str(self._key(kind, item)))
        found = stored["metadata"]["resourceVersion"]
        if item["metadata"].get("resourceVersion") != found:
            raise Conflict(f"found {found}")
        return self._write(kind, item)

    async def replace_status(self, kind: ResourceKind, item: Object) -> Object:
        return await self.replace(kind, item)

    async def delete(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        self._check_up()
        stored = self.objects.get((kind.kind, namespace, name))
        if stored is not None and uid not in (None, stored["metadata"]["uid"]):
            raise Conflict(f"found {stored['metadata']['uid']}")
        self.objects.pop((kind.kind, namespace, name), None)

    def touch(self, kind: ResourceKind, name: str, **fields: Any) -> None:
        """Somebody else's write."""
        item = self.objects[(kind.kind, "shop", name)]
        item.update(fields)
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)

    def _write(self, kind: ResourceKind, item: Object) -> Object:
        self._check_up()
        fault = self.faults.get(kind.kind, [])
        met = fault.pop(0) if fault else ""
        if met == "lost":
            raise OutcomeUnknown("the answer was lost")
        if met == "namespace gone":
            raise NamespaceTerminating("there is no such namespace")
        if met == "refused":
            raise Rejected("exceeded quota: count/partitionslices.tidemark.dev")
        if met == "conflict":
            raise Conflict("somebody was faster")
        self.version += 1
        self.writes += 1
        stored = copy.deepcopy(item)
        stored["metadata"]["resourceVersion"] = str(self.version)
        stored["metadata"].setdefault("uid", f"uid-{self.version}")
        self.objects[self._key(kind, item)] = stored
        if met == "landed":
            raise OutcomeUnknown("the answer was lost")
        return copy.deepcopy(stored)

    def _check_up(self) -> None:
        if self.is_down:
            raise StoreError("the store is down")

    @staticmethod
    def _key(kind: ResourceKind, item: Object) -> tuple[str, str, str]:
        metadata = item["metadata"]
        return (kind.kind, metadata.get("namespace", ""), metadata["name"])


class FakeProbe:
    def __init__(self) -> None:
        self.verdicts: dict[str, ProbeVerdict] = {}
        self.requested: list[str] = []
        self.was_asked = asyncio.Event()

    async def __call__(
        self, pool: str, broker_id: BrokerId, endpoints: Endpoints, incarnation: str
    ) -> ProbeVerdict:
        self.requested.append(incarnation)
        self.was_asked.set()
        return self.verdicts.get(incarnation, ProbeVerdict.ALIVE)


@dataclass
class FakeBroker:
    """The messages of one broker process; remembers what it was told."""

    harness: "Harness"
    broker_id: BrokerId
    incarnation: str
    epoch: BrokerEpoch = BrokerEpoch(-1)
    controller_epoch: ControllerEpoch = ControllerEpoch(-1)
    version: int = -1
    replicas: tuple[ReplicaReport, ...] = ()
    reported: dict[int, PartitionState] = field(default_factory=dict)
    poll: "asyncio.Task[HeartbeatResponse] | None" = None

    async def register(self, **changes: Any) -> RegisterResponse:
        request = RegisterRequest(
            POOL,
            self.broker_id,
            "",
            self.incarnation,
            Endpoints("10.0.0.1", 9092, 8080, "http://x"),
            "",
            StorageIdentity(f"directory-{self.broker_id}"),
            BrokerEpoch(-1),
            ControllerEpoch(-1),
            self.harness.highest_epochs.get(self.broker_id, BrokerEpoch(-1)),
            -1,
            self.replicas,
            applied_controller_epoch=self.controller_epoch,
            applied_image_version=self.version,
        )
        response = await self.harness.service.register(replace(request, **changes))
        if response.broker_epoch != -1:
            self.epoch = response.broker_epoch
            self.harness.highest_epochs[self.broker_id] = self.epoch
        return response

    def heartbeat(self, **changes: Any) -> "asyncio.Task[HeartbeatResponse]":
        request = HeartbeatRequest(
            POOL,
            self.broker_id,
            self.epoch,
            self.incarnation,
            self.controller_epoch,
            self.version,
            wants_to_serve=True,
            wants_to_stop=False,
        )
        request = replace(request, **changes)
        return asyncio.create_task(self.harness.service.heartbeat(request))

    def apply(self, response: HeartbeatResponse) -> None:
        push = response.push
        if push is None:
            return
        self.controller_epoch, self.version = push.controller_epoch, push.image_version
        for pushed in push.topics:
            for state in pushed.partitions:
                self.reported[state.partition] = state

    async def poll_to_the_end(self, **changes: Any) -> HeartbeatResponse:
        """One heartbeat, applied; for polls that are answered at once."""
        response = await asyncio.wait_for(self.heartbeat(**changes), HANG_SECONDS)
        self.apply(response)
        return response

    async def catch_up(self) -> None:
        """Polls until there is nothing new; the last poll stays open."""
        while True:
            self.poll = self.heartbeat()
            await evaluate()
            if not self.poll.done():
                return
            self.apply(self.poll.result())

    async def alter(self, *proposals: IsrProposal) -> AlterPartitionResponse:
        return await self.harness.service.alter_partition(
            AlterPartitionRequest(POOL, self.broker_id, self.epoch, proposals)
        )


class Harness:
    def __init__(self, *, store: Any = None, **settings: Any) -> None:
        self.clock = FakeClock()
        self.store = store if store is not None else FakeStore()
        self.probe = FakeProbe()
        self.changes: list[StateChange] = []
        self.settings = ControllerSettings(evaluate_retry_ms=0, **settings)
        self.service = self.another_controller()
        self.brokers: list[FakeBroker] = []
        self.highest_epochs: dict[BrokerId, BrokerEpoch] = {}  # on their volumes

    def another_controller(self, **changes: Any) -> ControllerService:
        return ControllerService(
            self.store,
            settings=self.settings,
            clock=self.clock,
            wall_clock_ms=lambda: WALL_CLOCK_MS + self.clock.ms,
            probe=self.probe,
            on_change=self.changes.append,
            **changes,
        )

    async def start(self, count: int = 3) -> "Harness":
        await self.service.load(ControllerEpoch(1))
        for number in range(count):
            self.brokers.append(await self.new_broker(number))
        for broker in self.brokers:
            await broker.catch_up()
        return self

    async def new_broker(self, number: int, life: str = "a") -> FakeBroker:
        broker = FakeBroker(self, BrokerId(number), f"{number}-{life}")
        await broker.register()
        await broker.catch_up()
        return broker

    async def create(
        self, partitions: int = 1, replicas: int = 3, *, flush: str = "Os", **config: str
    ) -> None:
        topic = replace(self.topic_state(partitions, replicas, **config), flush=flush)
        ids = [broker.broker_id for broker in self.brokers]
        await self.service.create_topic(POOL, topic, place(partitions, replicas, ids))
        for broker in self.brokers:
            await broker.catch_up()

    @staticmethod
    def topic_state(partitions: int = 1, replicas: int = 3, **config: str) -> TopicState:
        return TopicState("orders", ORDERS, partitions, replicas, config=config)

    def partition(self, number: int = 0) -> PartitionState:
        view = self.service.topic(POOL, ORDERS)
        assert view is not None
        return next(state for state in view.partitions if state.partition == number)

    def stored_slice(self, index: int = 0) -> Object:
        found: Object = self.store.objects[(PARTITION_SLICE.kind, "shop", f"orders-{index}")]
        return found

    async def tick(self) -> None:
        self.clock.ms += TICK_MS
        await self.service.tick()
        await evaluate()

    async def advance(self, ms: int, *polling: FakeBroker) -> None:
        """Time passes; `polling` brokers keep their polls open, the others are silent."""
        for _ in range(ms // TICK_MS):
            await self.tick()
            for broker in polling:
                if broker.poll is None or broker.poll.done():
                    await broker.catch_up()

    async def kill(self, broker: FakeBroker) -> None:
        """SIGKILL while its poll is open: its connections reset, its port refuses."""
        await broker.catch_up()
        self.probe.verdicts[broker.incarnation] = ProbeVerdict.REFUSED
        assert broker.poll is not None
        broker.poll.cancel()
        await evaluate()


async def evaluate() -> None:
    """Lets everything that needs no time happen."""
    for _ in range(60):
        await asyncio.sleep(0)
