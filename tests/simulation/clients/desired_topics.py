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
    from tests.simulation.engine.simulated_cluster import Cluster

LOOK_SECONDS = 0.2
RETAINED_MOVES = "moves of retained partitions"


@dataclass
class DesiredTopic:
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


def states_of(cluster: "Cluster", desired_topic: DesiredTopic) -> tuple[PartitionState, ...]:
    """As the leading operator knows them."""
    slot = cluster.leading_controller
    if slot is None or slot.service is None or cluster.pool not in slot.service.pools():
        return ()
    view = slot.service.topic(cluster.pool, desired_topic.topic_id)
    return () if view is None else view.partitions


async def keep_topics(cluster: "Cluster", who: str, service: ControllerService) -> None:
    """Until cancelled."""
    reported = 0
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        reported = await _keep_settings(cluster, service, reported)
        for desired_topic in tuple(cluster.topics):
            if not service.is_leading:
                break
            try:
                done = await _step(service, cluster, desired_topic)
            except (NotController, StoreError, NoLiveReplica, TooFewBrokers, TopicUnknown):
                continue  # tried again
            except SliceMissing as error:
                done = f"{type(error).__name__}: {error}"
                with contextlib.suppress(NotController, StoreError):
                    await service.find_slices(cluster.pool, desired_topic.topic_id)
            except CannotReassign as error:
                done = f"{type(error).__name__}: {error}"
            if done and done != desired_topic.last_news:
                desired_topic.last_news = done
                cluster.note(who, f"topic {desired_topic.topic} {desired_topic.topic_id}: {done}")


async def _keep_settings(cluster: "Cluster", service: ControllerService, reported: int) -> int:
    """Of the pool, as a BrokerPool object has them; what this controller knows then. One that
    leads anew knows nothing."""
    if not service.is_leading:
        return 0
    wanted = cluster.move_bytes_per_second
    if wanted != reported and cluster.pool in service.pools():
        with contextlib.suppress(NotController):
            await service.set_settings(cluster.pool, PoolSettings(wanted))
            return wanted
    return reported


async def _step(service: ControllerService, cluster: "Cluster", desired_topic: DesiredTopic) -> str:
    """The next one; what it was."""
    pool = cluster.pool
    if desired_topic.is_gone or pool not in service.pools():
        return ""
    view = service.topic(pool, desired_topic.topic_id)
    if desired_topic.is_deleted:
        await service.delete_topic(pool, desired_topic.topic_id, retain=False)
        desired_topic.is_gone = True
        return "deleted"
    if desired_topic.is_retained:
        if view is None:
            return ""
        if view.is_retained:  # off brokers that are to be emptied
            done = await _move(service, pool, desired_topic, view)
            cluster.coverage[RETAINED_MOVES] += "moved to" in done
            return done
        await service.delete_topic(pool, desired_topic.topic_id, retain=True)
        return "retained"
    if view is None or view.is_retained:
        return await _create(service, pool, desired_topic)
    if view.topic.partition_count < desired_topic.partitions:
        return await _grow(service, pool, desired_topic, view.topic.partition_count)
    if view.topic.config != desired_topic.config or cluster.applies_again:
        await service.update_topic(pool, desired_topic.state)
        return f"configured: {desired_topic.config}"
    if desired_topic.choices:
        await service.choose_leaders(
            pool, desired_topic.topic_id, tuple(desired_topic.choices.values())
        )
    return await _move(service, pool, desired_topic, view)


def _racks(service: ControllerService, pool: str) -> dict[BrokerId, str]:
    """Of all brokers there are."""
    return {broker.broker_id: broker.rack for broker in service.brokers(pool)}


async def _create(service: ControllerService, pool: str, desired_topic: DesiredTopic) -> str:
    racks = _racks(service, pool)
    assignments = place(
        desired_topic.partitions, desired_topic.replication_factor, tuple(racks), racks=racks
    )
    await service.create_topic(
        pool,
        desired_topic.state,
        assignments,
        had_slices=desired_topic.had_slices,
        deletion_policy="Delete",
    )
    desired_topic.had_slices = True
    return "created"


async def _grow(
    service: ControllerService, pool: str, desired_topic: DesiredTopic, present: int
) -> str:
    added = desired_topic.partitions - present
    racks = _racks(service, pool)
    assignments = place(
        added, desired_topic.replication_factor, tuple(racks), first_partition=present, racks=racks
    )
    await service.add_partitions(pool, desired_topic.topic_id, assignments, first=present)
    return f"has {desired_topic.partitions} partitions"


async def _move(
    service: ControllerService, pool: str, desired_topic: DesiredTopic, view: TopicView
) -> str:
    for state in view.partitions:
        is_settled = not (state.adding_replicas or state.removing_replicas)
        if is_settled and desired_topic.moves.get(state.partition) == state.replicas:
            del desired_topic.moves[state.partition]
            return f"partition {state.partition} moved to {list(state.replicas)}"
    if desired_topic.is_cancelling:
        desired_topic.is_cancelling = False
        desired_topic.moves = {s.partition: original_of(s) for s in view.partitions if is_moving(s)}
    if desired_topic.moves:
        try:
            await service.reassign(pool, desired_topic.topic_id, dict(desired_topic.moves))
        except CannotReassign:
            desired_topic.moves.clear()  # a user reads the condition and lets it be
            raise
    return ""
