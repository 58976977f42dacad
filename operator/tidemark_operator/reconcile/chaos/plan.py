"""Plan what is due for a ChaosExperiment, from the complete observation.

The finalizer is set before a run begins and removed when all is healed, so it says of each moment
whether something may have to be undone; experiments of the same pool wait for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from tidemark_operator.api.chaos_experiment import (
    ALLOWED,
    CHAOS_LABEL,
    ChaosExperiment,
    ExperimentStatus,
)
from tidemark_operator.api.kinds import Object
from tidemark_operator.api.objects import ConditionStatus
from tidemark_operator.reconcile.conditions import Condition
from tidemark_operator.resources.chaos_job import heal_name, is_job_of, run_name

# What is not watched is read again after so many ms.
POOL_INTERVAL_MS = 3_000
PODS_INTERVAL_MS = 1_000
HEAL_AGAIN_MS = 10_000

PHASES = {"PASSED": "Passed", "FAILED": "Failed", "ABORTED": "Aborted"}


@dataclass(frozen=True, slots=True)
class ObservedExperiment:
    experiment: ChaosExperiment
    pool: Object | None  # the BrokerPool that the spec names
    others: tuple[str, ...]  # experiments of the pool that run, or heal
    run: Object | None  # the Job of the run, also one of an earlier experiment of this name
    heal: Object | None  # the same of the Job that heals
    run_pods: tuple[str, ...]  # that have not ended
    run_exit: str = ""  # how the last pod of the run ended, where that is known

    @property
    def own_run(self) -> Object | None:
        is_own = self.run is not None and is_job_of(self.run, self.experiment)
        return self.run if is_own else None


@dataclass(frozen=True, slots=True)
class SetFinalizer:
    pass


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """The last action of all: the object may be gone after it."""


@dataclass(frozen=True, slots=True)
class StartRun:
    pass


@dataclass(frozen=True, slots=True)
class StopRun:
    uid: str


@dataclass(frozen=True, slots=True)
class StartHeal:
    pass


@dataclass(frozen=True, slots=True)
class DeleteHeal:
    uid: str


ChaosAction = SetFinalizer | RemoveFinalizer | StartRun | StopRun | StartHeal | DeleteHeal


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    """A plan: actions in this order, then the status; the finalizer is removed after it."""

    actions: tuple[ChaosAction, ...]
    fields: ExperimentStatus
    conditions: tuple[Condition, ...]
    again_ms: int | None = None  # for what no watch says


def plan_chaos(observed: ObservedExperiment, now: str) -> ChaosPlan:
    """Return the plan; `now` is RFC 3339 in UTC."""
    experiment, status = observed.experiment, observed.experiment.status
    if experiment.metadata.is_going:
        return _plan_deletion(observed)
    if status.phase == "Rejected":
        return _plan_rejected(observed)
    if status.verdict:
        return _plan_verdict(observed)
    if observed.own_run is None and not status.job:
        return _plan_begin(observed)
    return _plan_run(observed, now)


def _plan_begin(observed: ObservedExperiment) -> ChaosPlan:
    """Begin, or say why not; what is missing now may come."""
    experiment, pool = observed.experiment, observed.experiment.spec.pool
    labels = {} if observed.pool is None else observed.pool["metadata"].get("labels") or {}
    if observed.pool is None:
        reason = "PoolNotFound"
        said = f"BrokerPool {pool} does not exist in namespace {experiment.namespace}"
    elif labels.get(CHAOS_LABEL) != ALLOWED:
        reason = "PoolNotLabelled"
        said = (
            f"BrokerPool {pool} does not allow experiments. To allow them: kubectl --namespace"
            f" {experiment.namespace} label brokerpool {pool} {CHAOS_LABEL}={ALLOWED}"
        )
    elif observed.run is not None:
        reason = "NameTaken"
        said = f"waits until Job {run_name(experiment.name)} of an earlier experiment is deleted"
    elif observed.others:
        reason = "PoolBusy"
        said = f"{', '.join(observed.others)} runs on BrokerPool {pool}; this one begins after it"
    else:
        accepted = Condition("Accepted", True, "Accepted", f"BrokerPool {pool} allows it")
        starting = Condition("Completed", False, "Running", "the run starts")
        actions = (SetFinalizer(), StartRun())
        fields = ExperimentStatus(phase="Running", job=run_name(experiment.name))
        return ChaosPlan(actions, fields, (accepted, starting, _unhealed("the run starts")))
    conditions = (Condition("Accepted", False, reason, said),)
    return ChaosPlan((), ExperimentStatus(phase="Waiting"), conditions, POOL_INTERVAL_MS)


def _plan_run(observed: ObservedExperiment, now: str) -> ChaosPlan:
    experiment, status = observed.experiment, observed.experiment.status
    name = run_name(experiment.name)
    ended = _end_of(observed.own_run)
    if observed.own_run is not None and ended is None:
        fault = status.current_fault or "none yet"
        rounds = f"{status.rounds or 0} faults injected, current: {fault}"
        running = Condition("Completed", False, "Running", f"Job {name}: {rounds}")
        fields = ExperimentStatus(phase="Running", job=name)
        return ChaosPlan((), fields, (_accepted(status), running, _unhealed("faults may last")))
    found = "was deleted" if ended is None else f"failed: {observed.run_exit or ended.sentence}"
    said = f"no verdict: Job {name} {found}"
    fields = ExperimentStatus(
        phase="Healing", job=name, verdict="ABORTED", sentence=said, current_fault="",
        finished_at=now,
    )  # fmt: skip
    aborted = replace(status, verdict="ABORTED", sentence=said)
    conditions = (_accepted(status), *_verdict_conditions(aborted), _unhealed("healing is due"))
    return ChaosPlan((), fields, conditions, again_ms=0)


def _plan_verdict(observed: ObservedExperiment) -> ChaosPlan:
    """See to it that all is healed; the verdict is known."""
    status = observed.experiment.status
    conditions = (_accepted(status), *_verdict_conditions(status))
    phase = PHASES[status.verdict or "ABORTED"]
    if _is_true(status.known_conditions, "Healed"):
        return _healed(observed, phase, conditions, _message(status.known_conditions, "Healed"))
    run_ended = _end_of(observed.own_run)
    if run_ended is not None and run_ended.is_good:
        return _healed(observed, phase, conditions, "by the run itself")
    if observed.run_pods or (observed.own_run is not None and run_ended is None):
        # Until its pod has ended it might strike after the healing.
        conditions = (*conditions, _unhealed("the run ends"))
        return ChaosPlan((), ExperimentStatus(phase="Healing"), conditions, PODS_INTERVAL_MS)
    actions, said, is_healed, again_ms = _healing(observed)
    if is_healed:
        return _healed(observed, phase, conditions, said, actions)
    fields = ExperimentStatus(phase="Healing")
    return ChaosPlan(actions, fields, (*conditions, _unhealed(said)), again_ms)


def _plan_rejected(observed: ObservedExperiment) -> ChaosPlan:
    """Tell what the Job rejected; it began nothing, so nothing is to be healed."""
    reasons = observed.experiment.status.reasons or ("the Job gave no reason",)
    conditions = (
        Condition("Accepted", False, "Rejected", "; ".join(reasons)),
        Condition("Completed", True, "Rejected", "rejected before anything was struck"),
    )
    is_held = observed.experiment.has_finalizer
    return ChaosPlan((RemoveFinalizer(),) if is_held else (), ExperimentStatus(), conditions)


def _plan_deletion(observed: ObservedExperiment) -> ChaosPlan:
    """Stop the run, heal after its pod has ended, then let the object go."""
    experiment, status = observed.experiment, observed.experiment.status
    stored = status.known_conditions
    if not experiment.has_finalizer:
        return ChaosPlan((), ExperimentStatus(), _retained(stored))
    is_healed = _is_true(stored, "Healed") or (observed.own_run is None and not status.job)
    actions: tuple[ChaosAction, ...] = ()
    again_ms: int | None = PODS_INTERVAL_MS
    said = f"deleted during the run: Job {run_name(experiment.name)} stops"
    if not is_healed and observed.own_run is not None:
        if "deletionTimestamp" not in observed.own_run["metadata"]:
            actions = (StopRun(observed.own_run["metadata"]["uid"]),)
    elif not is_healed and not observed.run_pods:
        actions, said, is_healed, again_ms = _healing(observed)
    if is_healed:
        # Its status is not written any more: it would be the last word about what is gone.
        return ChaosPlan((*actions, RemoveFinalizer()), ExperimentStatus(), _retained(stored))
    fields = ExperimentStatus(phase="Healing")
    conditions = (*_retained(stored, besides=("Healed",)), _unhealed(said))
    return ChaosPlan(actions, fields, conditions, again_ms)


def _healing(
    observed: ObservedExperiment,
) -> tuple[tuple[ChaosAction, ...], str, bool, int | None]:
    """Return actions, what to say, whether all is healed, and when to come again."""
    job, name = observed.heal, heal_name(observed.experiment.name)
    if job is None:
        return (StartHeal(),), f"Job {name} resumes brokers and deletes the topic", False, None
    if not is_job_of(job, observed.experiment):
        said = f"Job {name} of an earlier experiment is deleted"
        return (DeleteHeal(job["metadata"]["uid"]),), said, False, PODS_INTERVAL_MS
    ended = _end_of(job)
    if ended is None:
        return (), f"Job {name} resumes brokers and deletes the topic", False, None
    uid = job["metadata"]["uid"]
    if ended.is_good:
        return (DeleteHeal(uid),), f"by Job {name}", True, None
    said = f"Job {name} failed and is started again: {ended.sentence}"
    return (DeleteHeal(uid),), said, False, HEAL_AGAIN_MS


def _healed(
    observed: ObservedExperiment,
    phase: str,
    conditions: tuple[Condition, ...],
    said: str,
    actions: tuple[ChaosAction, ...] = (),
) -> ChaosPlan:
    healed = Condition("Healed", True, "Healed", said)
    last = (RemoveFinalizer(),) if observed.experiment.has_finalizer else ()
    fields = ExperimentStatus(phase=phase)
    return ChaosPlan((*actions, *last), fields, (*conditions, healed))


def _verdict_conditions(status: ExperimentStatus) -> tuple[Condition, ...]:
    verdict, sentence = status.verdict or "", status.sentence or ""
    reason = PHASES[verdict]
    said = "; ".join((sentence, *(status.reasons or ())))
    return (
        Condition("Completed", True, reason, sentence),
        Condition("Passed", verdict == "PASSED", reason, said),
    )


def _accepted(status: ExperimentStatus) -> Condition:
    said = _message(status.known_conditions, "Accepted") or "the run has begun"
    return Condition("Accepted", True, "Accepted", said)


def _unhealed(said: str) -> Condition:
    return Condition("Healed", False, "Pending", said)


@dataclass(frozen=True, slots=True)
class _End:
    is_good: bool
    sentence: str


def _end_of(job: Object | None) -> _End | None:
    """Return how a Job ended, or None while it runs or if there is none."""
    for condition in ((job or {}).get("status") or {}).get("conditions") or ():
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            said = f"{condition.get('reason', '')}: {condition.get('message', '')}"
            return _End(condition["type"] == "Complete", said)
    return None


def _is_true(stored: Iterable[ConditionStatus], type_: str) -> bool:
    return any(each.type == type_ and each.status == "True" for each in stored)


def _message(stored: Iterable[ConditionStatus], type_: str) -> str:
    return next((each.message for each in stored if each.type == type_), "")


def _retained(
    stored: Iterable[ConditionStatus], *, besides: tuple[str, ...] = ()
) -> tuple[Condition, ...]:
    return tuple(
        Condition(each.type, each.status == "True", each.reason, each.message)
        for each in stored
        if each.type not in besides
    )
