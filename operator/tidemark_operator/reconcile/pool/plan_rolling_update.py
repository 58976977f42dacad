"""Decide which broker may be replaced now by one of the pool's present template (I19).

One at a time, by a controlled shutdown: it gives up its leaderships and leaves every ISR first.
None while another broker is away or some replica of a running broker is still catching up, and none
that would take a partition below min ISR. A partition that could never spare a replica, such as one
of replication factor 1, does not delay the pool without end: it is named instead.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidemark_protocol.ids import NO_BROKER, BrokerId
from tidemark_protocol.partition_state import PartitionState

from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.broker_runtime.broker_runtime import (
    BrokerProcess,
    ObservedBroker,
    ObservedPool,
    StopBroker,
)
from tidemark_operator.controller.core.timeline import RollStep
from tidemark_operator.controller.core.views import TopicView
from tidemark_operator.reconcile.conditions import Condition

MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class RollingUpdate:
    """The broker to `stop` now; while brokers are outdated and it is None, `obstacle` says why."""

    outdated: tuple[BrokerId, ...] = ()
    stop: StopBroker | None = None
    obstacle: str = ""
    interrupted: tuple[str, ...] = ()  # partitions without acks=all while that broker is away

    @property
    def is_over(self) -> bool:
        return not self.outdated


def plan_rolling_update(
    pool: BrokerPool,
    observed: ObservedPool,
    active_brokers: frozenset[BrokerId],
    topics: Iterable[TopicView],
) -> RollingUpdate:
    expected = {broker.broker_id: broker for broker in observed.brokers}
    expected = {i: broker for i, broker in expected.items() if i < pool.spec.replicas}
    outdated = tuple(sorted(i for i, broker in expected.items() if broker.is_outdated))
    if not outdated:
        return RollingUpdate()
    served = [view for view in topics if not view.is_retained]
    candidates = [expected[i] for i in outdated if _is_there(expected[i])]
    if all(_is_there(broker) for broker in expected.values()):
        for broker in candidates:
            # Away already, perhaps because its template is what is wrong: nothing more is lost by
            # it. A pod that is only not Ready may be up: the kubelet may not have probed it yet.
            if broker.broker_id not in active_brokers:
                return RollingUpdate(outdated, StopBroker(broker.broker_id, broker.instance))
    obstacle = next(_obstacles(pool, expected, active_brokers, served), "")
    if obstacle or not candidates:
        return RollingUpdate(outdated, obstacle=obstacle or "their pods are stopping")
    partitions = [(view.topic.topic, state) for view in served for state in view.partitions]
    refusals = []
    for broker in sorted(candidates, key=lambda each: _leads(each.broker_id, partitions)):
        below = [
            name
            for name, state in _named(partitions)
            if _falls_below(state, broker.broker_id) and not _never_spares(state)
        ]
        if below:
            refusals.append(f"without broker {broker.broker_id}, {_first(below)} would fall below")
            continue
        interrupted = tuple(
            name
            for name, state in _named(partitions)
            if _falls_below(state, broker.broker_id) and _never_spares(state)
        )
        return RollingUpdate(
            outdated, StopBroker(broker.broker_id, broker.instance), "", interrupted
        )
    return RollingUpdate(outdated, obstacle=f"{refusals[0]} min.insync.replicas")


def rolling_update_condition(rolling_update: RollingUpdate) -> Condition:
    if rolling_update.is_over:
        return Condition("Updated", True, "AllUpdated", "all brokers have the present pod template")
    names = ", ".join(map(str, rolling_update.outdated))
    if rolling_update.stop is None:
        text = f"brokers {names} have an older pod template; waiting: {rolling_update.obstacle}"
        return Condition("Updated", False, "Waiting", text)
    replaced = rolling_update.stop.broker_id
    text = f"brokers {names} have an older pod template; replacing broker {replaced}"
    if rolling_update.interrupted:
        interrupted = _first(rolling_update.interrupted)
        text += (
            "; acks=all is rejected meanwhile, because min.insync.replicas needs every"
            f" replica: {interrupted}"
        )
    return Condition("Updated", False, "Rolling", text)


def roll_step(rolling_update: RollingUpdate) -> RollStep:
    """Return the event of a rolling update that is not over."""
    stop = rolling_update.stop
    broker_id = NO_BROKER if stop is None else stop.broker_id
    return RollStep(broker_id, stop is None, rolling_update_condition(rolling_update).message)


def _is_there(broker: ObservedBroker) -> bool:
    return broker.process in (BrokerProcess.STARTING, BrokerProcess.RUNNING)


def _serves(broker: ObservedBroker, active_brokers: frozenset[BrokerId]) -> bool:
    """Return whether the broker serves, with a session.

    One of the present template must be Ready, or a bad template would be rolled out to all.
    """
    is_well = broker.process is BrokerProcess.RUNNING or (broker.is_outdated and _is_there(broker))
    return is_well and broker.broker_id in active_brokers


def _obstacles(
    pool: BrokerPool,
    expected: dict[BrokerId, ObservedBroker],
    active_brokers: frozenset[BrokerId],
    served: list[TopicView],
) -> Iterator[str]:
    for number in range(pool.spec.replicas):
        broker = expected.get(BrokerId(number))
        if broker is None or not _serves(broker, active_brokers):
            yield f"broker {number} is not active"
    for view in served:
        if view.missing_slices:
            yield f"PartitionSlice {view.missing_slices[0]} is missing"
        elif len(view.partitions) < view.topic.partition_count:
            yield f"the state of topic {view.topic.topic} is not completely known"
        for state in view.partitions:
            behind = sorted((set(state.replicas) - state.in_sync_ids) & active_brokers)
            if behind:
                name = f"{view.topic.topic}-{state.partition}"
                yield f"broker {behind[0]} is not in sync with {name} yet"


def _named(partitions: list[tuple[str, PartitionState]]) -> Iterator[tuple[str, PartitionState]]:
    return ((f"{topic}-{state.partition}", state) for topic, state in partitions)


def _leads(broker_id: BrokerId, partitions: list[tuple[str, PartitionState]]) -> int:
    """Return how many partitions the broker leads; the one that leads least is replaced first.

    Leaderships that move to a broker that is replaced next move twice.
    """
    return sum(state.leader == broker_id for _, state in partitions)


def _falls_below(state: PartitionState, broker_id: BrokerId) -> bool:
    left = len(state.in_sync_ids - {broker_id})
    return broker_id in state.in_sync_ids and left < state.min_insync_replicas


def _never_spares(state: PartitionState) -> bool:
    return len(state.replicas) <= state.min_insync_replicas


def _first(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - MAX_NAMED} more" if len(listed) > MAX_NAMED else ""
    return ", ".join(listed[:MAX_NAMED]) + more
