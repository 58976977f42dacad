"""Convert terminated audit pods to status fields."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET
from tidemark_protocol.audit_summary import (
    AuditSummary,
    MalformedSummary,
    RuleSummary,
    decode_summary,
)

from tidemark_operator.api.kinds import Object
from tidemark_operator.api.replication_audit import AuditStatus, HistoryEntry, RuleStatus
from tidemark_operator.resources.audit_job import CONTAINER, JOB_NAME_LABEL
from tidemark_operator.resources.spark_application import APPLICATION_LABEL, DRIVER_CONTAINER

NO_VERDICT = "NO-VERDICT"
NO_SOURCE = "NO-SOURCE"
MAX_REPORTED_INCIDENTS = 200
MAX_SENTENCE_CHARACTERS = 1000


End = tuple[str, str]  # when a run ended (RFC 3339), and why it failed or ""


@dataclass(frozen=True, slots=True)
class Run:
    """A Job or SparkApplication that ended."""

    name: str
    finished_time: str  # RFC 3339
    summary: AuditSummary | None  # None: it came to no verdict
    trouble: str = ""  # why, where there is none


def finished_runs(
    jobs: Iterable[Object], applications: Iterable[Object], pods: Iterable[Object]
) -> tuple[Run, ...]:
    """Return the Jobs and SparkApplications that completed or failed, oldest first."""
    by_job: dict[str, list[Object]] = {}
    by_application: dict[str, list[Object]] = {}
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        by_job.setdefault(labels.get(JOB_NAME_LABEL, ""), []).append(pod)
        by_application.setdefault(labels.get(APPLICATION_LABEL, ""), []).append(pod)
    runs = [
        _run(item, end, by_run.get(item["metadata"]["name"], ()))
        for items, end_of, by_run in (
            (jobs, _end_of_job, by_job),
            (applications, _end_of_application, by_application),
        )
        for item in items
        if (end := end_of(item)) is not None
    ]
    return tuple(sorted(runs, key=lambda run: (run.finished_time, run.name)))


def _end_of_job(job: Object) -> End | None:
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            failed = condition["type"] == "Failed"
            reason = f"{condition.get('reason', '')}: {condition.get('message', '')}"
            return condition["lastTransitionTime"], reason if failed else ""
    return None


def _end_of_application(application: Object) -> End | None:
    """Return how a SparkApplication ended, or None.

    COMPLETED and FAILED are final states of the Spark operator; from every other state, such as
    SUBMISSION_FAILED, it continues by itself.
    """
    status = application.get("status") or {}
    state = status.get("applicationState") or {}
    name = state.get("state", "")
    if name not in ("COMPLETED", "FAILED"):
        return None
    finished_time = (
        status.get("terminationTime")
        # Of one that was never submitted for good: its last attempt is what is known of its end.
        or status.get("lastSubmissionAttemptTime")
        or application["metadata"]["creationTimestamp"]
    )
    reason = f"{name}: {state.get('errorMessage') or 'the Spark operator gives no reason'}"
    return finished_time, reason if name == "FAILED" else ""


def _run(item: Object, end: End, pods: Iterable[Object]) -> Run:
    name, (finished_time, reason) = item["metadata"]["name"], end
    last_words = sorted(
        (words for pod in pods if (words := _termination(pod)) is not None),
        key=lambda words: words.ended_time,
        reverse=True,
    )
    # A retry's verdict counts more than the word of a pod before it, or after it, that saw nothing.
    summaries = [words.summary for words in last_words if words.summary is not None]
    for summary in sorted(summaries, key=is_without_source):
        return Run(name, finished_time, summary)
    trouble = reason or "the pod was deleted before its termination message was read"
    if last_words:
        said = " ".join(last_words[0].message.split())[-600:] or "nothing"
        trouble = (
            f"exit code {last_words[0].exit_code}; termination message: {said}; {reason}".rstrip(
                "; "
            )
        )
    return Run(name, finished_time, None, trouble[:MAX_SENTENCE_CHARACTERS])


def is_without_source(summary: AuditSummary) -> bool:
    """Return whether the run read nothing, which is no verdict."""
    return summary.verdict == NO_SOURCE


@dataclass(frozen=True, slots=True)
class _ExitReason:
    """What the container of one pod left when it ended."""

    message: str
    exit_code: int
    ended_time: str  # RFC 3339

    @property
    def summary(self) -> AuditSummary | None:
        try:
            return decode_summary(self.message.encode())
        except MalformedSummary:
            return None


def _termination(pod: Object) -> _ExitReason | None:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if container.get("name") in (CONTAINER, DRIVER_CONTAINER) and ended is not None:
            exit_code = int(ended.get("exitCode", -1))
            return _ExitReason(ended.get("message", ""), exit_code, ended.get("finishedAt") or "")
    return None


def status_fields(stored: AuditStatus, runs: Iterable[Run], history_limit: int) -> AuditStatus:
    """Return the status fields after these runs, including those it has already."""
    known = {entry.run: entry for entry in stored.history or ()}
    new = [run for run in runs if run.name not in known]
    entries = [*known.values(), *map(_history_entry, new)]
    entries.sort(key=lambda entry: (entry.finished_time, entry.run), reverse=True)
    fields = _of_last(entries[0]) if new else AuditStatus()
    fields = msgspec.structs.replace(fields, history=tuple(entries[:history_limit]))
    judged = [(run, run.summary) for run in new if run.summary is not None]
    judged = [(run, summary) for run, summary in judged if not is_without_source(summary)]
    if not judged:
        return fields
    last, summary = judged[-1]
    rules = tuple(_rule(rule) for rule in summary.rules)
    return msgspec.structs.replace(fields, last_success_time=last.finished_time, rules=rules)


def _of_last(entry: HistoryEntry) -> AuditStatus:
    return AuditStatus(
        verdict=entry.verdict,
        sentence=entry.sentence,
        coverage=entry.coverage,
        lost_records=entry.lost_records,
        findings=entry.findings,
        last_run_time=entry.finished_time,
    )


def _history_entry(run: Run) -> HistoryEntry:
    summary = run.summary
    if summary is None:
        return HistoryEntry(
            run=run.name,
            verdict=NO_VERDICT,
            sentence=run.trouble,
            finished_time=run.finished_time,
        )
    return HistoryEntry(
        run=run.name,
        verdict=summary.verdict,
        sentence=summary.sentence[:MAX_SENTENCE_CHARACTERS],
        finished_time=run.finished_time,
        window_start=_time_text(summary.window_start_ms),
        window_end=_time_text(summary.window_end_ms),
        coverage=f"{100 * summary.coverage:.2f} %",
        lost_records=summary.lost_records,
        findings=findings_text(summary.findings),
    )


def findings_text(findings: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in findings.items() if count) or "none"


def _rule(rule: RuleSummary) -> RuleStatus:
    return RuleStatus(
        rule=rule.rule,
        outcome=rule.outcome,
        value=UNSET if rule.value is None else rule.value,
        limit=UNSET if rule.limit is None else rule.limit,
        budget_left=UNSET if rule.budget_left is None else rule.budget_left,
    )


def _time_text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
