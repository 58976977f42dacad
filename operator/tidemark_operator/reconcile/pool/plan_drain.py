"""Plan what is due for brokers that are drained, or removed because replicas was lowered.

The Topics' passes move their replicas (`plan_placement`). Here: a broker above `replicas` is kept
running while it holds a replica, stopped once it holds none, and then recorded as Gone. There is no
timeout after which it is removed anyway: a broker that holds data is never stopped. Its claim stays
(I20). Retained data moves too (`plan_retained`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.broker_runtime.broker_runtime import (
    BrokerProcess,
    ObservedBroker,
    ObservedPool,
    PoolAction,
    StartBroker,
    StopBroker,
)
from tidemark_operator.controller.core.views import BrokerView
from tidemark_operator.reconcile.conditions import MAX_MESSAGE_CHARACTERS, Condition
from tidemark_operator.reconcile.pool.plan_retained import RetainedMoves
from tidemark_operator.reconcile.retained_data import (
    MAX_NAMED,
    RetainedReplicas,
    retained_count,
    retained_text,
    shortened,
)

MAX_BROKERS_NAMED = 5
PURGE_ADVICE = (
    "retained data is moved too; to delete it instead: tidemark topics purge, or spec.purgeRetained"
)


@dataclass(frozen=True, slots=True)
class Drain:
    actions: tuple[PoolAction, ...] = ()
    retire: tuple[BrokerId, ...] = ()  # to be recorded as Gone
    conditions: tuple[Condition, ...] = ()
    is_over: bool = True


def plan_drain(
    pool: BrokerPool,
    observed: ObservedPool,
    brokers: Iterable[BrokerView],
    replica_counts: Mapping[BrokerId, int] | None,
    kept: Mapping[BrokerId, RetainedReplicas] | None = None,
    unknown: Sequence[str] = (),
    retained: RetainedMoves | None = None,
) -> Drain:
    """Plan for leaving brokers.

    `replica_counts` are of all topics of the pool, None while the state of some, `unknown`, is not
    known. `kept` is the part of them that is retained data; `retained` tells how that moves.
    """
    known = {view.broker_id: view for view in brokers if view.state != "Gone"}
    running = {broker.broker_id: broker for broker in observed.brokers}
    surplus = sorted(b for b in {*known, *running} if b >= pool.spec.replicas)
    actions: list[PoolAction] = []
    retire = []
    for broker_id in surplus:
        broker = running.get(broker_id)
        if may_go(broker_id, replica_counts):
            if broker is not None and broker.process is not BrokerProcess.ABSENT:
                actions.append(StopBroker(broker_id, broker.instance))
            elif broker_id in known:
                retire.append(broker_id)
        elif broker is not None:
            actions.extend(_retained_running(broker))
    going = [b for b in surplus if b in known or running[b].process is not BrokerProcess.ABSENT]
    leaving = sorted({*going, *pool.spec.drain})
    held = {b: None if replica_counts is None else replica_counts.get(b, 0) for b in leaving}
    reported = _conditions(held, kept or {}, unknown, retained or RetainedMoves())
    is_over = not actions and not retire and all(count == 0 for count in held.values())
    return Drain(tuple(actions), tuple(retire), reported, is_over)


def may_go(broker_id: BrokerId, replica_counts: Mapping[BrokerId, int] | None) -> bool:
    """Return whether the broker holds no replica; False if in doubt."""
    return replica_counts is not None and replica_counts.get(broker_id, 0) == 0


def _retained_running(broker: ObservedBroker) -> tuple[PoolAction, ...]:
    if broker.process is BrokerProcess.EXITED:
        return (StopBroker(broker.broker_id, broker.instance),)  # it is started anew after that
    if broker.process is BrokerProcess.ABSENT and broker.has_storage:
        return (StartBroker(broker.broker_id),)
    return ()


def _conditions(
    held: Mapping[BrokerId, int | None],
    kept: Mapping[BrokerId, RetainedReplicas],
    unknown: Sequence[str],
    retained: RetainedMoves,
) -> tuple[Condition, ...]:
    if not held:
        return ()
    left = [broker_id for broker_id, count in held.items() if count != 0]
    if not left:
        names = ", ".join(map(str, held))
        return (Condition("Drained", True, "NoReplicas", f"brokers {names} hold no replicas"),)
    shown = left[:MAX_BROKERS_NAMED]
    sentences = [
        _reported(broker_id, held[broker_id], kept.get(broker_id, {})) for broker_id in shown
    ]
    if len(left) > len(shown):
        sentences.append(f"and {len(left) - len(shown)} more brokers hold replicas")
    if unknown:
        sentences.append(
            f"PartitionSlice objects are missing or unreadable: {shortened(unknown, MAX_NAMED)}"
        )
    have_topics = any(held[each] != retained_count(kept.get(each, {})) for each in left)
    if have_topics:
        sentences.append("see the conditions of the Topics, or run tidemark drain --wait")
    if any(kept.get(each) for each in left):
        sentences.append(PURGE_ADVICE)
        for each in retained.sentences():
            if sum(map(len, (*sentences, each))) > MAX_MESSAGE_CHARACTERS - 100:
                break  # names may be long, and the advice has to be whole
            sentences.append(each)
    is_stuck = bool(retained.waiting) and not (have_topics or retained.under_way)
    reason = "DataRetained" if is_stuck else "ReplicasMove"
    return (Condition("Drained", False, reason, "; ".join(sentences)),)


def _reported(broker_id: BrokerId, count: int | None, kept: RetainedReplicas) -> str:
    of_retained = retained_count(kept)
    said = f"{of_retained} replicas of retained data: {retained_text(kept)}"
    if count is None:
        beside = f", {said}" if kept else ""
        return f"broker {broker_id} holds an unknown number of replicas{beside}"
    if not kept:
        return f"broker {broker_id} holds {count} replicas"
    beside = f"{count - of_retained} replicas, and " if count > of_retained else ""
    return f"broker {broker_id} holds {beside}{said}"
