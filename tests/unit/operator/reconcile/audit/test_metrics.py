"""The operator's gauges about audits are what their statuses say."""

from datetime import datetime

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tidemark_operator.api.replication_audit import AuditStatus, ReplicationAudit
from tidemark_operator.reconcile.audit.metrics import AuditCollector
from tidemark_operator.reconcile.audit.runs import Run, status_fields
from tidemark_operator.reconcile.audit.schedule import Schedule, period_seconds, schedule_of
from tidemark_operator.reconcile.work_queue import WorkKey

from tests.support.api_objects import parsed
from tests.support.audit_objects import audit_object, summary

DAILY = WorkKey("ReplicationAudit", "shop", "daily")
CREATED = "2026-11-20T00:00:00Z"
DAY = 86_400


def due_seconds(status: AuditStatus) -> float | None:
    registry = CollectorRegistry()
    registry.register(AuditCollector({DAILY: status}, {DAILY: Schedule(CREATED, DAY)}))
    of = {"namespace": "shop", "audit": "daily"}
    return registry.get_sample_value("tidemark_audit_due_timestamp_seconds", of)


def at_seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_a_scheduled_audit_is_due_two_periods_after_its_last_success() -> None:
    succeeded = AuditStatus(last_success_time="2026-11-21T06:01:00Z")
    assert due_seconds(succeeded) == at_seconds("2026-11-23T06:01:00Z")
    # One that never came to a verdict has no last success, and is as late.
    assert due_seconds(AuditStatus()) == at_seconds("2026-11-22T00:00:00Z")


def test_single_and_suspended_audits_are_never_due() -> None:
    for fields in ({}, {"schedule": "0 6 * * *", "suspend": True}, {"schedule": "@every 1h"}):
        audit = parsed(ReplicationAudit, audit_object(**fields))
        assert schedule_of(audit.spec, CREATED) is None
    daily = parsed(ReplicationAudit, audit_object(schedule="0 6 * * *"))
    assert schedule_of(daily.spec, CREATED) == Schedule(CREATED, DAY)


@pytest.mark.parametrize(
    ("schedule", "days"),
    [
        ("*/5 * * * *", 1 / 24), ("* * * * *", 1 / 1440), ("17 * * * *", 1 / 24),
        ("0 */6 * * *", 1), ("0 6 * * 1", 7), ("0 6 1 * *", 31), ("0 6 1 * 1", 7),
        ("0 6 1 1 *", 366), ("@daily", 1), ("@weekly", 7),
    ],
)  # fmt: skip
def test_the_period_of_a_schedule_is_an_upper_bound(schedule: str, days: float) -> None:
    assert period_seconds(schedule) == pytest.approx(days * DAY)


def test_gauges_of_the_last_run() -> None:
    status = status_fields(AuditStatus(), [Run("daily-1", "2026-11-21T06:01:00Z", summary())], 10)
    registry = CollectorRegistry()
    registry.register(AuditCollector({DAILY: status}, {}))
    lines = generate_latest(registry).decode().splitlines()
    of = '{audit="daily",namespace="shop"'
    assert f'tidemark_audit_verdict{of},verdict="LOSS"}} 1.0' in lines
    assert f"tidemark_audit_lost_records{of}}} 12.0" in lines
    assert f"tidemark_audit_coverage_ratio{of}}} 0.9981" in lines
    assert f'tidemark_audit_findings{of},severity="critical"}} 1.0' in lines
    assert f'tidemark_audit_error_budget_remaining_ratio{of},rule="R1"}} 0.5' in lines
    assert any(line.startswith("tidemark_audit_last_success_timestamp_seconds{") for line in lines)
