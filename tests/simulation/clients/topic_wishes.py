"""What users want of topics, and the loop of a leading operator that brings it about.

It stands for Topic objects and the reconcilers, which are not simulated: level-triggered, one step
at a time, everything tried again.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.controller.core.placement import TooFewBrokers, place
from tidemark_operator.controller.core.reassignment import CannotReassign, is_moving, original_of
from tidemark_operator.controller.core.views import PoolSettings
from tidemark_operator.controller.service import (
    ControllerService,
    NoLiveReplica,
    NotController,
    SliceMissing,
    TopicUnknown,
    TopicView,
)
from tidemark_operator.store.object_store import StoreError
from tidemark_protocol.ids import BrokerId, TopicId
from tidemark_protocol.partition_state import PartitionState, TopicState

if TYPE_CHECKING:
    from tests.simulation.engine.world import Cluster

LOOK_SECONDS = 0.2
RETAINED_MOVES = "moves of retained partitions"


@dataclass
class TopicWish:
    """A Topic object: what its user wants, and what its status remembers."""

    topic: str
    topic_id: TopicId
    partitions: int
    replication_factor: int
    commit_rule: str = "MinInsync"
    flush: str = "Os"
    config: dict[str, str] = field(default_factory=dict)
    moves: dict[int, tuple[BrokerId, ...]] = field(default_factory=dict)  # until they are done
    is_cancelling: bool = False  # moves, when they are looked at next
    # Of leaders, as an annotation that stays where it is.
    choices: dict[int, LeaderChoice] = field(default_factory=dict)
    is_deleted: bool = False
    is_retained: bool = False  # deleted with deletionPolicy Retain, until applied again
    had_slices: bool = False
    is_gone: bool = False  # deleted, and the controller said so
    last_news: str = ""

    @property
    def is_wanted(self) -> bool:
        return not (self.is_deleted or self.is_retained)

    @property
    def state(self) -> TopicState:
        return TopicState(
            self.topic,
            self.topic_id,
            self.partitions,
            self.replication_factor,
            self.commit_rule,
            self.flush,
            dict(self.config),
        )


def states_of(world: "Cluster", wish: TopicWish) -> tuple[PartitionState, ...]:
    """As the leading operator knows them."""
    slot = world.leading_controller
    if slot is None or slot.service is None or world.pool not in slot.service.pools():
        return ()
    view = slot.service.topic(world.pool, wish.topic_id)
    return () if view is None else view.partitions


async def keep_topics(world: "Cluster", who: str, service: ControllerService) -> None:
    """Until cancelled."""
    reported = 0
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        reported = await _keep_settings(world, service, reported)
        for wish in tuple(world.topics):
            if not service.is_leading:
                break
            try:
                done = await _step(service, world, wish)
            except (NotController, StoreError, NoLiveReplica, TooFewBrokers, TopicUnknown):
                continue  # tried again
            except SliceMissing as error:
                done = f"{type(error).__name__}: {error}"
                with contextlib.suppress(NotController, StoreError):
                    await service.find_slices(world.pool, wish.topic_id)
            except CannotReassign as error:
                done = f"{type(error).__name__}: {error}"
            if done and done != wish.last_news:
                wish.last_news = done
                world.note(who, f"topic {wish.topic} {wish.topic_id}: {done}")


async def _keep_settings(world: "Cluster", service: ControllerService, reported: int) -> int:
    """Of the pool, as a BrokerPool object has them; what this controller knows then. One that
    leads anew knows nothing."""
    if not service.is_leading:
        return 0
    wanted = world.move_bytes_per_second
    if wanted != reported and world.pool in service.pools():
        with contextlib.suppress(NotController):
            await service.set_settings(world.pool, PoolSettings(wanted))
            return wanted
    return reported


async def _step(service: ControllerService, world: "Cluster", wish: TopicWish) -> str:
    """The next one; what it was."""
    pool = world.pool
    if wish.is_gone or pool not in service.pools():
        return ""
    view = service.topic(pool, wish.topic_id)
    if wish.is_deleted:
        await service.delete_topic(pool, wish.topic_id, retain=False)
        wish.is_gone = True
        return "deleted"
    if wish.is_retained:
        if view is None:
            return ""
        if view.is_retained:  # off brokers that are to be emptied
            done = await _move(service, pool, wish, view)
            world.coverage[RETAINED_MOVES] += "moved to" in done
            return done
        await service.delete_topic(pool, wish.topic_id, retain=True)
        return "retained"
    if view is None or view.is_retained:
        return await _create(service, pool, wish)
    if view.topic.partition_count < wish.partitions:
        return await _grow(service, pool, wish, view.topic.partition_count)
    if view.topic.config != wish.config or world.applies_again:
        await service.update_topic(pool, wish.state)
        return f"configured: {wish.config}"
    if wish.choices:
        await service.choose_leaders(pool, wish.topic_id, tuple(wish.choices.values()))
    return await _move(service, pool, wish, view)


def _racks(service: ControllerService, pool: str) -> dict[BrokerId, str]:
    """Of all brokers there are."""
    return {broker.broker_id: broker.rack for broker in service.brokers(pool)}


async def _create(service: ControllerService, pool: str, wish: TopicWish) -> str:
    racks = _racks(service, pool)
    assignments = place(wish.partitions, wish.replication_factor, tuple(racks), racks=racks)
    await service.create_topic(
        pool, wish.state, assignments, had_slices=wish.had_slices, deletion_policy="Delete"
    )
    wish.had_slices = True
    return "created"


async def _grow(service: ControllerService, pool: str, wish: TopicWish, present: int) -> str:
    added = wish.partitions - present
    racks = _racks(service, pool)
    assignments = place(
        added, wish.replication_factor, tuple(racks), first_partition=present, racks=racks
    )
    await service.add_partitions(pool, wish.topic_id, assignments, first=present)
    return f"has {wish.partitions} partitions"


async def _move(service: ControllerService, pool: str, wish: TopicWish, view: TopicView) -> str:
    for state in view.partitions:
        is_settled = not (state.adding_replicas or state.removing_replicas)
        if is_settled and wish.moves.get(state.partition) == state.replicas:
            del wish.moves[state.partition]
            return f"partition {state.partition} moved to {list(state.replicas)}"
    if wish.is_cancelling:
        wish.is_cancelling = False
        wish.moves = {s.partition: original_of(s) for s in view.partitions if is_moving(s)}
    if wish.moves:
        try:
            await service.reassign(pool, wish.topic_id, dict(wish.moves))
        except CannotReassign:
            wish.moves.clear()  # a user reads the condition and lets it be
            raise
    return ""
