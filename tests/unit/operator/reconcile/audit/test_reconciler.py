"""An audit's Job or CronJob, and what becomes of what its runs said, over the real SQLite store."""

from pathlib import Path
from typing import Any

import pytest
from tidemark_operator.api.kinds import CRON_JOB, EVENT, JOB
from tidemark_operator.api.schemas import validate

from tests.support.audit_objects import (
    audit_object,
    incident,
    summary,
)
from tests.unit.operator.reconcile.audit.audit_world import AuditCluster, in_cluster


def test_without_a_schedule_it_runs_once_for_every_generation(tmp_path: Path) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        await cluster.apply(audit_object())
        await cluster.turn()
        generation = (await cluster.audit())["metadata"]["generation"]
        assert await cluster.names(JOB) == [f"daily-{generation}"]
        await cluster.store.delete(JOB, "shop", f"daily-{generation}")  # by hand, or by a TTL
        await cluster.turn()
        assert await cluster.names(JOB) == []
        await cluster.apply(audit_object(window="7d"))
        await cluster.turn()
        assert await cluster.names(JOB) == [f"daily-{generation + 1}"]

    in_cluster(tmp_path, scenario)


def test_a_schedule_is_a_cron_job_that_follows_its_audit(tmp_path: Path) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        await cluster.apply(audit_object(schedule="0 6 * * *", timeZone="Etc/UTC"))
        await cluster.turn()
        (cron_job,) = await cluster.store.list(CRON_JOB, "shop")
        assert cron_job["spec"]["schedule"] == "0 6 * * *"
        assert cron_job["spec"]["timeZone"] == "Etc/UTC"
        assert await cluster.names(JOB) == []
        await cluster.apply(audit_object(schedule="0 7 * * *", suspend=True))
        await cluster.turn()
        (cron_job,) = await cluster.store.list(CRON_JOB, "shop")
        assert (cron_job["spec"]["schedule"], cron_job["spec"]["suspend"]) == ("0 7 * * *", True)
        assert (await cluster.conditions())["Ready"] == ("False", "Suspended")
        await cluster.apply(audit_object())
        await cluster.turn()
        assert await cluster.names(CRON_JOB) == []
        assert len(await cluster.names(JOB)) == 1

    in_cluster(tmp_path, scenario)


def test_what_a_run_said_stands_in_the_status(tmp_path: Path) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        await cluster.apply(audit_object(schedule="0 6 * * *"))
        await cluster.run_ends("daily-1", summary())
        status = await cluster.status()
        assert status["verdict"] == "LOSS"
        assert status["lostRecords"] == 12
        assert status["coverage"] == "99.81 %"
        assert status["findings"] == "1 critical, 2 minor"
        assert status["lastSuccessTime"] == "2026-11-21T06:01:00Z"
        assert [entry["run"] for entry in status["history"]] == ["daily-1"]
        assert status["rules"][1] == {"rule": "R6", "outcome": "violated", "value": 12, "limit": 0}
        conditions = await cluster.conditions()
        assert conditions["Completed"] == ("True", "Loss")
        assert conditions["SLOMet"] == ("False", "Loss")
        assert conditions["LossDetected"] == ("True", "Loss")
        assert validate(await cluster.audit()) == []

    in_cluster(tmp_path, scenario)


def test_a_run_that_passes_clears_what_the_last_one_said(tmp_path: Path) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        await cluster.apply(audit_object(schedule="0 6 * * *"))
        await cluster.run_ends("daily-1", summary())
        kept = summary(verdict="PASS", lost_records=0, findings={}, rules=(), incidents=())
        await cluster.run_ends("daily-2", kept, at="2026-11-22T06:01:00Z")
        status, conditions = await cluster.status(), await cluster.conditions()
        assert (status["verdict"], status["findings"]) == ("PASS", "none")
        assert conditions["SLOMet"] == ("True", "Pass")
        assert conditions["LossDetected"] == ("False", "Pass")
        assert [entry["run"] for entry in status["history"]] == ["daily-2", "daily-1"]

    in_cluster(tmp_path, scenario)


def test_a_run_without_a_verdict_says_why_and_keeps_what_is_known(tmp_path: Path) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        await cluster.apply(audit_object(schedule="0 6 * * *"))
        await cluster.run_ends("daily-1", summary())
        trouble = "Job has reached the specified backoff limit"
        await cluster.run_ends(
            "daily-2", "no answer from prometheus", at="2026-11-22T06:01:00Z", failed=trouble
        )
        status, conditions = await cluster.status(), await cluster.conditions()
        assert status["verdict"] == "NO-VERDICT"
        assert "no answer from prometheus" in status["history"][0]["sentence"]
        assert trouble in status["history"][0]["sentence"]
        assert status["lastSuccessTime"] == "2026-11-21T06:01:00Z"
        assert conditions["Completed"] == ("False", "NoVerdict")
        assert conditions["LossDetected"] == ("True", "Loss")

    in_cluster(tmp_path, scenario)


def test_a_run_that_read_nothing_clears_no_loss_and_is_no_success(tmp_path: Path) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        await cluster.apply(audit_object(schedule="0 6 * * *"))
        await cluster.run_ends("daily-1", summary())
        blind = summary(verdict="NO-SOURCE", sentence="no such host", lost_records=0, rules=())
        await cluster.run_ends("daily-2", blind, at="2026-11-22T06:01:00Z")
        status, conditions = await cluster.status(), await cluster.conditions()
        assert (status["verdict"], status["sentence"]) == ("NO-SOURCE", "no such host")
        assert status["lastSuccessTime"] == "2026-11-21T06:01:00Z"
        assert [rule["rule"] for rule in status["rules"]] == ["R1", "R6"]
        assert conditions["Completed"] == ("False", "NoSource")
        assert conditions["LossDetected"] == ("True", "Loss")

    in_cluster(tmp_path, scenario)


def test_an_incident_has_one_event_however_many_runs_see_it(tmp_path: Path) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        await cluster.apply(audit_object(schedule="0 6 * * *"))
        await cluster.run_ends("daily-1", summary())
        again = summary(incidents=(incident(1), incident(2, severity="minor")))
        await cluster.run_ends("daily-2", again, at="2026-11-21T07:01:00Z")
        events = await cluster.store.list(EVENT, "shop")
        assert [event["metadata"]["name"] for event in events] == ["daily.f001", "daily.f002"]
        assert [event["type"] for event in events] == ["Warning", "Normal"]
        assert events[0]["involvedObject"]["kind"] == "ReplicationAudit"
        assert events[0]["message"] == "orders-0: 12 committed records are gone"

    in_cluster(tmp_path, scenario)


def test_history_is_bounded_and_old_single_jobs_go(tmp_path: Path) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        for number in range(1, 7):
            await cluster.apply(audit_object(historyLimit=4, window=f"{number}h"))
            await cluster.turn()
            (job,) = set(await cluster.names(JOB)) - {
                entry["run"] for entry in (await cluster.status()).get("history", ())
            }
            await cluster.run_ends(job, summary(incidents=()), at=f"2026-11-21T0{number}:00:00Z")
        assert len((await cluster.status())["history"]) == 4
        assert len(await cluster.names(JOB)) == 3

    in_cluster(tmp_path, scenario)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"source": {}}, "source needs exactly one of prometheus and files"),
        ({"window": "soon"}, "spec.window: 'soon' does not match"),
        ({"windw": "1h"}, 'unknown field "spec.windw"'),
    ],
)
def test_a_wrong_manifest_is_refused_with_a_sentence(spec: dict[str, Any], sentence: str) -> None:
    assert any(found.startswith(sentence) for found in validate(audit_object(**spec)))
