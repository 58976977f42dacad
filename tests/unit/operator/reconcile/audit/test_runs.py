"""What ended Jobs, SparkApplications and their pods say, as fields of a status."""

from typing import Any

import pytest
from msgspec import UNSET
from tidemark_operator.api.replication_audit import AuditStatus
from tidemark_operator.reconcile.audit.runs import (
    MAX_SENTENCE_CHARACTERS,
    Run,
    findings_text,
    finished_runs,
    status_fields,
)

from tests.support.audit_objects import (
    application_status,
    driver_pod,
    ended_job,
    ended_pod,
    summary,
)

EARLY, LATE = "2026-11-21T06:01:00Z", "2026-11-22T06:01:00Z"


def application(name: str, **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "creationTimestamp": "2026-11-20T00:00:00Z"}
    return {"metadata": metadata, "status": application_status(**status)}


def runs_in(fields: AuditStatus) -> list[str]:
    return [entry.run for entry in fields.history or ()]


@pytest.mark.parametrize("first, second", [(0, 1), (1, 0)])
def test_of_a_run_with_a_retry_the_verdict_counts(first: int, second: int) -> None:
    """In whatever order its pods are listed."""
    blind = ended_pod("daily-1", summary(verdict="NO-SOURCE"), 4, at="2026-11-21T06:00:10Z")
    checked_proposal = ended_pod("daily-1", summary(), at="2026-11-21T06:00:50Z")
    pods = (blind, checked_proposal)
    (run,) = finished_runs([ended_job("daily-1")], [], [pods[first], pods[second]])
    assert run.summary is not None
    assert run.summary.verdict == "LOSS"


@pytest.mark.parametrize("first, second", [(0, 1), (1, 0)])
def test_of_pods_without_a_verdict_the_newest_says_why(first: int, second: int) -> None:
    pods = (
        ended_pod("daily-1", "no room", 1, at="2026-11-21T06:00:10Z"),
        ended_pod("daily-1", "no memory", 137, at="2026-11-21T06:00:50Z"),
    )
    (run,) = finished_runs([ended_job("daily-1")], [], [pods[first], pods[second]])
    assert run.trouble == "exit code 137; termination message: no memory"


def test_only_what_ended_is_a_run_and_the_oldest_comes_first() -> None:
    running = ended_job("daily-0")
    running["status"]["conditions"][0]["status"] = "False"
    jobs = [ended_job("daily-3", at=LATE), running, {"metadata": {"name": "daily-new"}}]
    applications = [application("daily-2", at=EARLY), application("daily-4", state="RUNNING")]
    found = finished_runs(jobs, applications, [])
    assert [run.name for run in found] == ["daily-2", "daily-3"]


def test_a_run_gets_the_verdict_of_its_own_pod_alone() -> None:
    pods = [ended_pod("daily-1", summary(verdict="PASS")), driver_pod("daily-2", summary())]
    runs = finished_runs([ended_job("daily-1")], [application("daily-2", at=LATE)], pods)
    assert [run.summary and run.summary.verdict for run in runs] == ["PASS", "LOSS"]


def test_a_run_without_a_pod_says_why_it_failed() -> None:
    (failed,) = finished_runs([ended_job("daily-1", failed="too slow")], [], [])
    assert failed.trouble == "BackoffLimitExceeded: too slow"
    (complete,) = finished_runs([ended_job("daily-1")], [], [])
    assert "pod was deleted" in complete.trouble


def test_trouble_of_any_length_is_shortened() -> None:
    (run,) = finished_runs([ended_job("daily-1", failed="x" * 5000)], [], [])
    assert len(run.trouble) == MAX_SENTENCE_CHARACTERS


def test_the_newest_run_is_what_the_status_says_and_history_is_bounded() -> None:
    first = status_fields(AuditStatus(), [Run("daily-1", EARLY, summary(verdict="PASS"))], 2)
    later = [Run("daily-3", "2026-11-23T06:01:00Z", summary()), Run("daily-2", LATE, summary())]
    fields = status_fields(first, later, 2)
    assert (fields.verdict, fields.last_run_time) == ("LOSS", "2026-11-23T06:01:00Z")
    assert runs_in(fields) == ["daily-3", "daily-2"]


def test_runs_that_are_in_the_history_already_change_nothing_else() -> None:
    runs = [Run("daily-1", EARLY, summary())]
    fields = status_fields(status_fields(AuditStatus(), runs, 10), runs, 10)
    assert runs_in(fields) == ["daily-1"]
    assert (fields.verdict, fields.last_success_time) == (UNSET, UNSET)


@pytest.mark.parametrize("said", [None, summary(verdict="NO-SOURCE")], ids=["none", "no source"])
def test_a_run_that_judged_nothing_is_no_success(said: Any) -> None:
    fields = status_fields(AuditStatus(), [Run("daily-1", EARLY, said, "no room")], 10)
    assert fields.verdict == ("NO-VERDICT" if said is None else "NO-SOURCE")
    assert (fields.last_success_time, fields.rules) == (UNSET, UNSET)


def test_findings_that_were_not_found_are_not_named() -> None:
    assert findings_text({"critical": 1, "major": 0, "minor": 2}) == "1 critical, 2 minor"
    assert findings_text({"critical": 0}) == findings_text({}) == "none"
