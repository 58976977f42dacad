"""The operator's gauges about audits are what their statuses say."""

from datetime import datetime

from prometheus_client import CollectorRegistry, generate_latest
from tidemark_operator.api.replication_audit import AuditStatus
from tidemark_operator.reconcile.audit.metrics import AuditCollector
from tidemark_operator.reconcile.audit.runs import Run, status_fields
from tidemark_operator.reconcile.audit.schedule import Schedule
from tidemark_operator.reconcile.work_queue import WorkKey

from tests.support.audit_objects import summary

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
