"""Change what state brokers are in: active, draining, fenced; and store what they report.

A fence or a drain is assumed at once and stays if its write fails; a broker is active only once
that is stored.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from tidemark_protocol.controller_messages import CommittedTruncation
from tidemark_protocol.ids import BrokerEpoch, BrokerId

from tidemark_operator.api.broker import BrokerControlState
from tidemark_operator.controller.core.decision import (
    ChangeSlices,
    Evaluate,
    EvaluateAndSave,
    NotifyBrokers,
    SaveBroker,
    Steps,
)
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.core.timeline import BrokerChanged, BrokerTurn

logger = logging.getLogger(__name__)

NO_SILENCE: Mapping[BrokerId, int] = MappingProxyType({})


def activate(
    pool: PoolState, broker_id: BrokerId, broker_epoch: BrokerEpoch, now_ms: Callable[[], int]
) -> Steps[None]:
    """Unfence a broker: store the record, then run elections that may choose it."""
    record = pool.current(broker_id, broker_epoch)
    if record is None or record.is_live or record.state is BrokerControlState.GONE:
        return
    yield SaveBroker(replace(record, state=BrokerControlState.ACTIVE))
    pool.timeline.record(BrokerChanged(BrokerTurn.ACTIVE, broker_id, broker_epoch))
    pool.sessions.contact(broker_id, now_ms())
    pool.image.set_brokers(pool.broker_states())
    yield Evaluate()
    logger.info("broker active", extra=log_fields(pool, broker_id))


def drain(
    pool: PoolState, broker_id: BrokerId, broker_epoch: BrokerEpoch, now_ms: Callable[[], int]
) -> Steps[None]:
    """Move all leadership off a broker and remove it from each ISR (controlled shutdown)."""
    record = pool.current(broker_id, broker_epoch)
    notes = pool.soft_state_of(broker_id)
    if record is None or not record.is_live or notes.drained_at_version is not None:
        return
    pool.observations.planned_restarts.begin(broker_id, now_ms())
    pool.brokers[broker_id] = replace(record, state=BrokerControlState.DRAINING)
    pool.timeline.record(BrokerChanged(BrokerTurn.DRAINING, broker_id, broker_epoch))
    if (yield EvaluateAndSave((broker_id,))).is_complete:
        # Set once (KAFKA-14292): who must have applied what.
        notes.drained_at_version = pool.image.version
        notes.drained_at_ms = now_ms()
    logger.info("broker draining", extra=log_fields(pool, broker_id))
    yield NotifyBrokers()


def fence(
    pool: PoolState,
    lives: Iterable[tuple[BrokerId, BrokerEpoch]],
    reason: str,
    silence_ms: Mapping[BrokerId, int] = NO_SILENCE,
) -> Steps[None]:
    """Fence these brokers in one step, so that none of them is elected meanwhile.

    `silence_ms`: how long ago their last heartbeats were, for people.
    """
    fenced = []
    for broker_id, broker_epoch in lives:
        record = pool.current(broker_id, broker_epoch)
        if record is None or not record.is_live:
            continue
        if not record.is_stopping:
            pool.observations.planned_restarts.end(broker_id)
        pool.brokers[broker_id] = replace(record, state=BrokerControlState.FENCED)
        pool.sessions.end(broker_id)
        fenced.append(broker_id)
        silence = silence_ms.get(broker_id)
        pool.timeline.record(
            BrokerChanged(BrokerTurn.FENCED, broker_id, broker_epoch, reason, silence)
        )
        logger.info("broker fenced", extra={**log_fields(pool, broker_id), "reason": reason})
    if fenced:
        yield EvaluateAndSave(tuple(fenced), leaving=tuple(fenced))


def fail_storage(pool: PoolState, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> Steps[None]:
    """Invalidate all entries of a broker epoch; the next start is unclean (S8)."""
    record = pool.current(broker_id, broker_epoch)
    if record is None or record.clean_since > broker_epoch:
        return
    failed = replace(
        record,
        state=BrokerControlState.FENCED,
        clean_since=BrokerEpoch(broker_epoch + 1),
        disk_since=BrokerEpoch(broker_epoch + 1),
    )
    yield SaveBroker(failed)
    pool.sessions.end(broker_id)
    pool.timeline.record(BrokerChanged(BrokerTurn.STORAGE_FAILED, broker_id, broker_epoch))
    yield EvaluateAndSave((), leaving=(broker_id,))
    logger.error("broker storage failed", extra=log_fields(pool, broker_id))


def evaluate_failures(
    pool: PoolState, broker_id: BrokerId, broker_epoch: BrokerEpoch
) -> Steps[None]:
    """Remove failed replicas from each set (S9).

    No earlier decision can be stored after that.
    """
    if pool.current(broker_id, broker_epoch) is None:
        return
    notes = pool.soft_state_of(broker_id)
    failed = notes.failed_replicas  # a later heartbeat may say more while this is stored
    if notes.evaluated_failures != failed:
        is_complete = (yield Evaluate()).is_complete
        notes.evaluated_failures = failed if is_complete else frozenset()


def record_truncations(
    pool: PoolState, truncations: tuple[CommittedTruncation, ...]
) -> Steps[bool]:
    """Store truncations that followers report, which are the cost of an unclean election.

    Returns False if that is deferred. Nothing is stored when a later election replaced it.
    """
    ids = dict.fromkeys(cut.topic_id for cut in truncations)
    outcome = yield ChangeSlices(
        {
            value.name: lambda stored: stored.with_truncations(truncations)
            for topic_id in ids
            for value in pool.topic_slices(topic_id)
        }
    )
    return outcome.is_complete


def log_fields(pool: PoolState, broker_id: BrokerId) -> dict[str, object]:
    return {
        "pool": pool.pool,
        "broker_id": broker_id,
        "broker_epoch": pool.brokers[broker_id].broker_epoch,
        "controller_epoch": pool.controller_epoch,
    }
