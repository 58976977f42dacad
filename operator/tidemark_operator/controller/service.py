"""Run the controller of all pools, as the operator and the brokers see it.

One `PoolLoop` for each pool decides; here are the sessions' clock, the open polls, probes of
suspected brokers, and the states "leads" and "stands by". Time comes from `Clock` alone: open polls
and sessions are checked each tick, so a test that calls `tick` needs no real time.

Invariants here: I16 (a deposed controller stops deciding immediately), S18's guard, S19.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID, uuid4

from tidemark_protocol.controller_messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    RegisterRequest,
    RegisterResponse,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_EPOCH, BrokerId, ControllerEpoch, TopicId
from tidemark_protocol.partition_state import TopicState

from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.api.kinds import BROKER, PARTITION_SLICE
from tidemark_operator.controller import takeover
from tidemark_operator.controller.clock import Clock
from tidemark_operator.controller.commands import (
    allocate_producer_ids as producer_ids,
)
from tidemark_operator.controller.commands import (
    create_topic as topics,
)
from tidemark_operator.controller.commands import (
    elect_leaders as requested_elections,
)
from tidemark_operator.controller.commands import (
    reassign_partitions,
)
from tidemark_operator.controller.commands.alter_partition import alter_partition
from tidemark_operator.controller.commands.create_topic import TopicUnknown
from tidemark_operator.controller.commands.reassign_partitions import Targets
from tidemark_operator.controller.commands.topic_growth import Assignments, SliceMissing
from tidemark_operator.controller.core.decision import Deferred
from tidemark_operator.controller.core.disk_use import DiskUse
from tidemark_operator.controller.core.explanations import Explanation, explain
from tidemark_operator.controller.core.new_partitions import NoLiveReplica
from tidemark_operator.controller.core.settings import ControllerSettings
from tidemark_operator.controller.core.timeline import ActionRequested, RollStep, Timeline
from tidemark_operator.controller.core.views import BrokerView, PoolSettings, StateChange, TopicView
from tidemark_operator.controller.decision_tasks import DecisionTasks, NotController
from tidemark_operator.controller.heartbeats import Heartbeats, PoolEnvironment
from tidemark_operator.controller.pool_loop import PoolLoop
from tidemark_operator.controller.probe import Probe, ProbeVerdict
from tidemark_operator.controller.slice_store import ControllerSuperseded
from tidemark_operator.store.lease import EpochTaken, highest_stored_epoch
from tidemark_operator.store.object_store import ObjectStore, StoreError

__all__ = [
    "BrokerView",
    "ControllerService",
    "ControllerSettings",
    "NoLiveReplica",
    "NotController",
    "ProbeVerdict",
    "SliceMissing",
    "StateChange",
    "TopicUnknown",
    "TopicView",
]

logger = logging.getLogger(__name__)

MAX_POOLS = 1000

Result = TypeVar("Result")


class ControllerService:
    def __init__(
        self,
        store: ObjectStore,
        *,
        settings: ControllerSettings,
        clock: Clock,
        wall_clock_ms: Callable[[], int],
        probe: Probe,
        on_change: Callable[[StateChange], None],
        new_uuid: Callable[[], UUID] = uuid4,
        rack_of: Callable[[RegisterRequest], Awaitable[str]] | None = None,
    ) -> None:
        """Create a controller that stands by.

        `rack_of` returns the rack of a broker that registers and may raise StoreError; None uses
        the broker's own value.
        """
        self._store = store
        self._rack_of = rack_of
        self._settings = settings
        self.installation = settings.installation
        self._clock = clock
        self._tasks = DecisionTasks(on_superseded=self._stand_by)
        self._environment = PoolEnvironment(
            store,
            settings,
            clock.now_ms,
            wall_clock_ms,
            probe,
            tasks=self._tasks,
            on_change=on_change,
            new_uuid=new_uuid,
        )
        self._controller_epoch: ControllerEpoch | None = None  # None: stands by
        self._leader_address = ""
        self._highest_seen = ControllerEpoch(NO_EPOCH)
        self._pools: dict[str, Heartbeats] = {}
        self._ticker: asyncio.Task[None] | None = None
        self._balance_due_ms = 0

    async def take_over(
        self, controller_epoch: ControllerEpoch, *, is_second_opinion: bool = False
    ) -> None:
        """Read Broker and PartitionSlice objects by quorum list, then decide, and start the ticks.

        `is_second_opinion` if the controller before stepped down because it heard too few brokers
        (S18). Raises StoreError when the store cannot be read, EpochTaken.
        """
        await self.load(controller_epoch, is_second_opinion=is_second_opinion)
        self._ticker = asyncio.create_task(self._run_ticks(), name="controller ticks")

    async def load(
        self, controller_epoch: ControllerEpoch, *, is_second_opinion: bool = False
    ) -> None:
        """Take over without ticks, for callers that call `tick` themselves."""
        self._tasks.open()  # before anything is awaited: a Lease may be lost meanwhile
        await self.step_down()
        brokers = await self._store.list(BROKER, None)
        slices = await self._store.list(PARTITION_SLICE, None)
        self._check_is_untaken(controller_epoch, highest_stored_epoch(brokers, slices))
        await takeover.load(
            lambda pool: self._pool(pool, controller_epoch).decisions, brokers, slices
        )
        now_ms = self._clock.now_ms()
        for pool in self._pools.values():
            pool.start(now_ms, is_second_opinion=is_second_opinion)
        self._balance_due_ms = now_ms + self._settings.balance_interval_ms
        self._controller_epoch = controller_epoch
        counts = {"controller_epoch": controller_epoch, "slices": len(slices)}
        logger.info("controller leads", extra=counts)

    # guard: stored-epoch-is-not-taken-again (S16)
    def _check_is_untaken(self, controller_epoch: ControllerEpoch, stored: ControllerEpoch) -> None:
        """Refuse a controller epoch that another term used.

        A Lease restored from a backup grants an epoch a second time.
        """
        self._record_seen(stored)
        if stored >= controller_epoch:
            raise EpochTaken(
                f"controller epoch {controller_epoch} is taken: stored epoch is {stored}"
            )

    async def step_down(self) -> None:
        """Stop deciding, answer each open poll NOT_CONTROLLER, and forget all state."""
        self._stand_by()
        tasks = [task for task in (*self._tasks.under_way(), self._ticker) if task is not None]
        self._ticker = None
        tasks = [task for task in tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def depose(self) -> None:
        """Let no decision begin from now on, also while the loop is busy (I16). From any thread."""
        self._tasks.close()

    @property
    def is_leading(self) -> bool:
        return self._controller_epoch is not None and not self._tasks.is_closed

    @property
    def controller_epoch(self) -> ControllerEpoch:
        """Return the controller epoch, -1 while standing by."""
        epoch = self._controller_epoch
        return ControllerEpoch(NO_EPOCH if epoch is None else epoch)

    @property
    def leader_address(self) -> str:
        return self._leader_address

    def set_leader_address(self, address: str) -> None:
        """Set the host:port in NOT_CONTROLLER responses while standing by; "" is unknown."""
        self._leader_address = address

    # Brokers' requests. They never raise for what a broker sent; errors are in the answers.

    async def register(self, request: RegisterRequest) -> RegisterResponse:
        self._record_seen(request.highest_controller_epoch)
        epoch = self._controller_epoch
        if epoch is None or request.highest_controller_epoch > epoch:
            return self._registers_elsewhere()
        namespace, _, name = request.pool.partition("/")
        if not namespace or not name or len(request.pool) > 320:
            return RegisterResponse(
                ErrorCode.INVALID_REGISTRATION,
                f"pool: expected namespace/name, found {request.pool[:320]!r}",
            )
        try:
            if self._rack_of is not None:
                request = replace(request, rack=await self._rack_of(request))
        except StoreError as error:
            return RegisterResponse(
                ErrorCode.REQUEST_TIMED_OUT, f"the rack cannot be read: {error}: register again"
            )
        if self._controller_epoch != epoch:  # stepped down while the rack was looked up
            return self._registers_elsewhere()
        if request.pool not in self._pools and len(self._pools) >= MAX_POOLS:
            return RegisterResponse(
                ErrorCode.POLICY_VIOLATION, f"more than {MAX_POOLS} pools: remove pools"
            )
        pool = self._pool(request.pool, epoch)
        try:
            response = await self._tasks.decide(pool.register(request))
        except (NotController, ControllerSuperseded):
            return self._registers_elsewhere()
        pool.response_ready()
        return response

    def _registers_elsewhere(self) -> RegisterResponse:
        return RegisterResponse(ErrorCode.NOT_CONTROLLER, controller_address=self._leader_address)

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Answer a long poll.

        Cancel it when its connection broke: that closes the poll and suspects the broker.
        """
        self._record_seen(request.applied_controller_epoch)
        epoch = self._controller_epoch
        if epoch is None or request.applied_controller_epoch > epoch:
            return self._polls_elsewhere()
        pool = self._pools.get(request.pool)
        if pool is None:
            return HeartbeatResponse(
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                f"no broker of pool {request.pool} is registered: register",
                epoch,
            )
        try:
            if pool.has_applied_anothers_push(request):
                # S16: another term had our number (its Lease was deleted before it wrote
                # anything). Our pushes would look old there: acquire anew, above it.
                self._record_seen(ControllerEpoch(epoch + 1))
                return HeartbeatResponse(ErrorCode.NOT_CONTROLLER)
            return await pool.heartbeat(request)
        except (NotController, ControllerSuperseded):
            return self._polls_elsewhere()

    def _polls_elsewhere(self) -> HeartbeatResponse:
        return HeartbeatResponse(ErrorCode.NOT_CONTROLLER, controller_address=self._leader_address)

    async def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        epoch = self._controller_epoch
        pool = self._pools.get(request.pool)
        not_controller = AllocateProducerIdsResponse(
            ErrorCode.NOT_CONTROLLER, controller_address=self._leader_address
        )
        if epoch is None:
            return not_controller
        if pool is None:
            return AllocateProducerIdsResponse(
                ErrorCode.STALE_BROKER_EPOCH, "register first", controller_epoch=epoch
            )
        try:
            return await self._tasks.decide(pool.decisions.run(producer_ids.allocate, request))
        except (NotController, ControllerSuperseded):
            return not_controller

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        epoch = self._controller_epoch
        pool = self._pools.get(request.pool)
        if epoch is None:
            return AlterPartitionResponse(ErrorCode.NOT_CONTROLLER)
        if pool is None:
            return AlterPartitionResponse(
                ErrorCode.STALE_BROKER_EPOCH, "register first", controller_epoch=epoch
            )
        try:
            return await self._tasks.decide(pool.decisions.run(alter_partition, request))
        except (NotController, ControllerSuperseded):
            return AlterPartitionResponse(ErrorCode.NOT_CONTROLLER)

    # Reconcilers' calls. All raise NotController; writes raise StoreError (retry later).

    def highest_broker_controller_epoch(self) -> ControllerEpoch:
        """Return the highest controller epoch that a broker reported (S16), or -1."""
        return self._highest_seen

    def reason_to_give_way(self) -> str:
        """Return why another controller should decide instead of this one (S18), or ""."""
        pools = self._pools.copy().values()  # asked from another thread, perhaps
        return "; ".join(pool.silence for pool in pools if pool.silence)

    def pools(self) -> tuple[str, ...]:
        return tuple(sorted(self._pools))

    def brokers(self, pool: str) -> tuple[BrokerView, ...]:
        known = self._known(pool)
        return () if known is None else known.state.broker_views()

    def broker_silence_ms(self, pool: str) -> dict[BrokerId, int | None]:
        """Return how long ago each broker was heard; None while it has no session."""
        known = self._known(pool)
        if known is None:
            return {}
        now_ms = self._clock.now_ms()
        return {i: known.sessions.silence_ms(i, now_ms) for i in sorted(known.state.brokers)}

    def disk_uses(self, pool: str) -> dict[BrokerId, DiskUse]:
        """Return the volume of each broker that reported it."""
        known = self._known(pool)
        if known is None:
            return {}
        soft_state_of = known.state.soft_state_of
        return {i: disk for i in sorted(known.state.brokers) if (disk := soft_state_of(i).disk)}

    def topic_ids(self, pool: str) -> tuple[TopicId, ...]:
        """Return the ids of all topics, retained ones too, in the order of their slices' names."""
        known = self._known(pool)
        return () if known is None else known.state.slices.topic_ids()

    def topic(self, pool: str, topic_id: TopicId) -> TopicView | None:
        known = self._known(pool)
        return None if known is None else known.topic_view(topic_id)

    def topics(self, pool: str) -> tuple[TopicView, ...]:
        known = self._known(pool)
        return () if known is None else known.topic_views()

    def topics_named(self, pool: str, topic: str) -> tuple[TopicView, ...]:
        """Return the served and retained topics of that name."""
        known = self._known(pool)
        return () if known is None else known.topic_views_named(topic)

    def partition_count(self, pool: str) -> int:
        """Return the partitions of all topics, retained data included."""
        known = self._known(pool)
        return 0 if known is None else known.state.slices.partition_count

    def timeline(self, pool: str) -> Timeline:
        """Return the event log of a pool that `pools` names."""
        return self._pools[pool].decisions.state.timeline

    def explanation(self, pool: str, topic: str, partition: int) -> Explanation | None:
        """Explain the state of a served partition; None if there is no such one."""
        state = self._pools[pool].decisions.state
        for topic_id in state.slices.topic_ids_named(topic):
            for value in state.topic_slices(topic_id):
                for each in value.partitions:
                    if each.partition == partition and not value.is_retained:
                        return explain(state, value.topic, each)
        return None

    def topic_object(self, pool: str, topic_id: str) -> str:
        """Return metadata.name of a known topic's object, or "", also once leadership is lost."""
        found = self._pools.get(pool)
        slices = () if found is None else found.decisions.state.topic_slices(TopicId(topic_id))
        return slices[-1].object_name if slices else ""

    def record_roll_step(self, pool: str, step: RollStep) -> None:
        """Record a step of a rolling restart in the pool's event log."""
        found = self._pools.get(pool)
        if found is None:
            return
        timeline = found.decisions.state.timeline
        latest = timeline.latest(lambda event: isinstance(event.fact, RollStep), 1)
        if not latest or latest[0].fact != step:  # each pass comes to the same while it waits
            timeline.record(step)

    def record_action(self, pool: str, action: ActionRequested) -> None:
        """Record what a person asked for on the live page in the pool's event log."""
        self._pools[pool].decisions.state.timeline.record(action)

    def applied_version(self, pool: str) -> int:
        self._check_leading()
        return self._pools[pool].decisions.state.lowest_applied_version()

    async def create_topic(
        self,
        pool: str,
        topic: TopicState,
        assignments: Assignments,
        *,
        object_name: str = "",
        deletion_policy: str = "Retain",
        had_slices: bool = False,
    ) -> None:
        """Create the slices, or adopt retained ones of this topic id. Idempotent.

        `object_name` is metadata.name of the Topic (slices are named after it), by default its
        name. `had_slices` if the Topic's status says that slices were created once; then missing
        ones raise SliceMissing (S12), also without it when a broker holds replicas of the id.
        Raises NoLiveReplica when a partition would have no live broker to begin with.
        """
        await self._decide_for_reconciler(
            self._deciding(pool).run_on_topic(
                topic.topic_id,
                topics.create,
                topic,
                assignments,
                object_name=object_name or topic.topic,
                deletion_policy=deletion_policy,
                had_slices=had_slices,
            )
        )

    async def update_topic(
        self, pool: str, topic: TopicState, *, deletion_policy: str | None = None
    ) -> None:
        """Store a new config and, unless None, a new deletion policy. Idempotent.

        The min ISR changes by compare-and-set with the eligible leaders (S6). Raises TopicUnknown,
        SliceMissing.
        """
        await self._decide_for_reconciler(
            self._deciding(pool).run_on_topic(
                topic.topic_id, topics.update, topic, deletion_policy=deletion_policy
            )
        )

    async def add_partitions(
        self, pool: str, topic_id: TopicId, assignments: Assignments, *, first: int
    ) -> None:
        """Add partitions from number `first` on, with these assignments. Idempotent.

        Raises TopicUnknown, NoLiveReplica, SliceMissing.
        """
        await self._decide_for_reconciler(
            self._deciding(pool).run_on_topic(
                topic_id, topics.add_partitions, topic_id, assignments, first=first
            )
        )

    async def reassign(self, pool: str, topic_id: TopicId, targets: Targets) -> None:
        """Begin or cancel moves of partitions. Idempotent.

        Raises CannotReassign for those that cannot begin, after the others have.
        """
        await self._decide_for_reconciler(
            self._deciding(pool).run(reassign_partitions.reassign, topic_id, targets)
        )

    async def set_settings(self, pool: str, settings: PoolSettings) -> None:
        self._deciding(pool).set_settings(settings)

    async def retire_broker(self, pool: str, broker_id: BrokerId) -> None:
        """Record a broker as Gone if it is fenced and no slice names it. Idempotent."""
        await self._decide_for_reconciler(
            self._deciding(pool).run(reassign_partitions.retire, broker_id)
        )

    async def delete_topic(
        self, pool: str, topic_id: TopicId, *, retain: bool, topic: str = ""
    ) -> None:
        """Stop serving a topic, and delete its slices or mark them as retained. Idempotent.

        With its name in `topic`, brokers erase it also if its slices are missing.
        """
        await self._decide_for_reconciler(
            self._deciding(pool).run_on_topic(
                topic_id, topics.delete, topic_id, retain=retain, topic=topic
            )
        )

    async def choose_leaders(
        self, pool: str, topic_id: TopicId, choices: tuple[LeaderChoice, ...]
    ) -> None:
        """Store a person's choices of leaders (S14). Idempotent.

        They are for partitions without an eligible leader.
        """
        await self._decide_for_reconciler(
            self._deciding(pool).run(topics.choose_leaders, topic_id, choices)
        )

    async def elect_leaders(
        self, pool: str, topic_id: TopicId, partitions: Collection[int], *, unclean: bool
    ) -> dict[int, ErrorCode]:
        """Elect leaders as a client requests it (commands/elect_leaders.py)."""
        elect = (
            requested_elections.elect_unclean if unclean else requested_elections.elect_preferred
        )
        electing = self._deciding(pool).run(elect, topic_id, partitions)
        return await self._decide_for_reconciler(electing)

    async def find_slices(self, pool: str, topic_id: TopicId) -> None:
        """Read slices of that topic id, which were missing and may have been restored (S12)."""
        finding = self._deciding(pool).run_on_topic(topic_id, topics.find_slices, topic_id)
        await self._decide_for_reconciler(finding)

    async def confirm_slices(self, pool: str, topic_id: TopicId) -> None:
        """Check by live reads which of a topic's slices are missing (S12).

        A list lacked one of them.
        """
        await self._decide_for_reconciler(self._deciding(pool).confirm_slices(topic_id))

    def suspect(self, pool: str, broker_id: BrokerId, reason: str) -> None:
        """Probe a broker whose pod was deleted or ended, and fence it if the probe is refused.

        Never waits.
        """
        found = self._pools.get(pool)
        if self.is_leading and found is not None:
            found.suspect(broker_id, reason)

    # Time.

    async def tick(self) -> None:
        """Check sessions and poll deadlines, and retry what was deferred."""
        now_ms = self._clock.now_ms()
        is_balance_due = now_ms >= self._balance_due_ms
        if is_balance_due:
            self._balance_due_ms = now_ms + self._settings.balance_interval_ms
        for pool in tuple(self._pools.values()):
            pool.tick(now_ms)
            if is_balance_due:
                self._tasks.spawn(pool.decisions.balance(), f"balance {pool.decisions.state.pool}")
        # Decisions are tasks: a slow store must not hold back the next tick, which answers polls.
        await asyncio.sleep(0)

    async def _run_ticks(self) -> None:
        while self.is_leading:
            try:
                await self.tick()
            except NotController as error:  # deposed in the middle of it, or overloaded
                logger.warning("tick interrupted", extra={"error": str(error)})
            except Exception:  # go on: without ticks no broker would be fenced
                logger.exception("tick failed")
            await asyncio.sleep(self._settings.tick_interval_ms / 1000)

    def _check_leading(self) -> ControllerEpoch:
        if self._controller_epoch is None:
            raise NotController("this controller is on standby: ask the leader")
        return self._controller_epoch

    def _known(self, pool: str) -> PoolLoop | None:
        self._check_leading()
        found = self._pools.get(pool)
        return None if found is None else found.decisions

    def _deciding(self, pool: str) -> PoolLoop:
        return self._pool(pool, self._check_leading()).decisions

    def _pool(self, pool: str, controller_epoch: ControllerEpoch) -> Heartbeats:
        found = self._pools.get(pool)
        if found is None:
            found = Heartbeats(pool, controller_epoch, self._environment)
            self._pools[pool] = found
        return found

    def _record_seen(self, controller_epoch: ControllerEpoch) -> None:
        self._highest_seen = max(self._highest_seen, controller_epoch)

    def _stand_by(self) -> None:
        self._controller_epoch = None
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.stop(self._leader_address)

    async def _decide_for_reconciler(self, decision: Coroutine[Any, Any, Result]) -> Result:
        try:
            return await self._tasks.decide(decision)
        except Deferred as error:
            raise StoreError(f"{error}: retry") from error
        except ControllerSuperseded as error:
            raise NotController(str(error)) from error
