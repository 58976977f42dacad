"""Register a process as its broker's present epoch, and apply its report of logs (S2, S9)."""

import logging
from collections.abc import Callable
from uuid import UUID

from tidemark_protocol.controller_messages import RegisterRequest, RegisterResponse
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_EPOCH

from tidemark_operator.api.broker import NO_ROUND, BrokerRecord, round_of
from tidemark_operator.controller.commands.broker_state import log_fields
from tidemark_operator.controller.core.broker_soft_state import BrokerSoftState
from tidemark_operator.controller.core.decision import (
    ConfirmBroker,
    Deferred,
    Evaluate,
    EvaluateLater,
    ReportChange,
    SaveBroker,
    Steps,
    UnsettleSlices,
)
from tidemark_operator.controller.core.eligibility import BrokerEligibility
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.core.registration import (
    Accepted,
    RegistrationError,
    decided,
    found_replicas,
    lost_replicas,
    report_of,
)
from tidemark_operator.controller.core.settings import ControllerSettings
from tidemark_operator.controller.core.timeline import BrokerChanged, BrokerTurn
from tidemark_operator.controller.core.views import StateChange

logger = logging.getLogger(__name__)


def register(
    pool: PoolState,
    request: RegisterRequest,
    settings: ControllerSettings,
    *,
    wall_clock_ms: int,
    now_ms: Callable[[], int],
    new_uuid: Callable[[], UUID],
) -> Steps[RegisterResponse]:
    stored = pool.brokers.get(request.broker_id)
    outcome = decided(
        request,
        stored=stored,
        highest_epoch=pool.highest_broker_epoch(),
        cluster_id=pool.cluster_id() or request.cluster_id or str(new_uuid()),
        controller_epoch=pool.controller_epoch,
        replaced=pool.replaced.get(request.broker_id, ()),
        lost_round=_lost_round(pool, request, wall_clock_ms),
    )
    pool.record_producer_id_round(round_of(request.highest_producer_id))
    if isinstance(outcome, RegistrationError):
        return RegisterResponse(outcome.error, outcome.message)
    try:
        yield from _admit(pool, request, stored, outcome, now_ms)
    except Deferred as error:
        yield EvaluateLater()
        return RegisterResponse(ErrorCode.REQUEST_TIMED_OUT, f"{error}: register again")
    record = outcome.record
    return RegisterResponse(
        ErrorCode.NONE,
        controller_epoch=pool.controller_epoch,
        broker_epoch=record.broker_epoch,
        cluster_id=record.cluster_id,
        is_clean=outcome.is_clean,
        session_timeout_ms=settings.session_timeout_ms,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
    )


def _start_text(outcome: Accepted) -> str:
    return "its logs are complete" if outcome.is_clean else "it had not stopped in order"


def _lost_round(pool: PoolState, request: RegisterRequest, wall_clock_ms: int) -> int:
    """Return a round that is not below any that a lost Broker object may have recorded.

    The object of a broker that is not new is missing, or is from before its last epoch. The other
    brokers' disks know the blocks that it gave out, but not all may have registered yet; there were
    fewer than one a second.
    """
    stored = pool.brokers.get(request.broker_id)
    if stored is not None:
        is_lost = request.highest_broker_epoch > stored.broker_epoch
    else:
        partitions = (p for value in pool.slices.values() for p in value.partitions)
        is_lost = request.highest_broker_epoch != NO_EPOCH or any(
            request.broker_id in partition.replicas for partition in partitions
        )
    return wall_clock_ms // 1000 if is_lost else NO_ROUND


def _admit(
    pool: PoolState,
    request: RegisterRequest,
    stored: BrokerRecord | None,
    outcome: Accepted,
    now_ms: Callable[[], int],
) -> Steps[None]:
    """Store a registration and apply its report (S2, S9).

    First the earlier epoch is fenced and invalid entries are removed, then the new epoch is stored,
    then its report counts.
    """
    broker_id, record = request.broker_id, outcome.record
    report = report_of(request)
    yield UnsettleSlices(pool.record_reported(request.replicas, version=pool.image.version))
    notes = BrokerSoftState(
        lost_replicas=lost_replicas(report, pool.assigned(), request),
        lost_below=record.broker_epoch,
        found_replicas=found_replicas(report),
    )
    if outcome.is_same_epoch:
        known = pool.soft_state_of(broker_id)
        known.lost_replicas, known.lost_below = notes.lost_replicas, notes.lost_below
        known.found_replicas = notes.found_replicas
        known.applied_version = -1
    else:
        if stored is not None:
            yield from _end_former_life(pool, request, stored, outcome, notes)
        if stored is not None and request.clean_stop_epoch == stored.broker_epoch:
            # Known already, unless another controller led when it stopped.
            pool.observations.planned_restarts.begin(broker_id, now_ms())
        yield SaveBroker(record)
        if stored is not None:
            pool.record_replaced(stored)
        pool.notes[broker_id] = notes
        pool.sessions.end(broker_id)
        reason = "its first start" if stored is None else _start_text(outcome)
        pool.timeline.record(
            BrokerChanged(BrokerTurn.REGISTERED, broker_id, record.broker_epoch, reason)
        )
        logger.info(
            "broker registered",
            extra={
                **log_fields(pool, broker_id),
                "clean": outcome.is_clean,
                "clean_since": record.clean_since,
                "disk_since": record.disk_since,
            },
        )
    known = pool.soft_state_of(broker_id)
    known.report = report
    known.report_version = _report_version(pool, request, outcome)
    pool.image.set_brokers(pool.broker_states())
    yield Evaluate()  # the report may be the last one that an election waited for (S14)
    if pool.reports_wanted >= 0:
        yield ReportChange(StateChange("broker", pool.pool, str(broker_id)))  # or a Topic (S17)


def _end_former_life(
    pool: PoolState,
    request: RegisterRequest,
    stored: BrokerRecord,
    outcome: Accepted,
    notes: BrokerSoftState,
) -> Steps[None]:
    """Remove the former epoch's invalid entries; raise Deferred unless that is stored."""
    broker_id, record = request.broker_id, outcome.record
    if not outcome.is_clean:
        # Of a life that a deposed controller registered this start may well be the proof:
        # its entries are not struck out by what we read before.
        yield ConfirmBroker(stored)
    pool.soft_state_of(broker_id).report = None  # of a log as it was before
    pool.observations.record_next_epoch(stored, request.clean_stop_epoch)
    leaving = BrokerEligibility(
        broker_id,
        stored.broker_epoch,
        record.clean_since,
        record.disk_since,
        is_live=False,
        lost_replicas=notes.lost_replicas,
        lost_below=notes.lost_below,
    )
    if not (yield Evaluate(overriding=(leaving,))).is_complete:
        raise Deferred(f"broker {broker_id}: earlier broker epoch is not fenced yet")


def _report_version(pool: PoolState, request: RegisterRequest, outcome: Accepted) -> int:
    """Return the image version up to which the report shows logs that do not change (S14).

    The request may be old when it is read, and its broker may have followed a leader meanwhile.
    """
    if not outcome.is_same_epoch and request.applied_image_version < 0:
        return pool.image.version  # it leads and follows nothing yet
    is_ours = request.applied_controller_epoch == pool.controller_epoch
    return request.applied_image_version if is_ours else -1
