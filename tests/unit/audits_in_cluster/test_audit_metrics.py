"""The operator's gauges about audits are what their statuses say."""

from prometheus_client import CollectorRegistry, generate_latest
from tidemark_operator.audits.metrics import AuditCollector
from tidemark_operator.audits.runs import Run, status_fields
from tidemark_operator.reconcile.work_queue import WorkKey

from tests.unit.audits_in_cluster.audit_objects import summary


def test_gauges_of_the_last_run() -> None:
    status = status_fields({}, [Run("daily-1", "2026-11-21T06:01:00Z", summary())], 10)
    registry = CollectorRegistry()
    registry.register(AuditCollector({WorkKey("ReplicationAudit", "shop", "daily"): status}))
    lines = generate_latest(registry).decode().splitlines()
    of = '{audit="daily",namespace="shop"'
    assert f'tidemark_audit_verdict{of},verdict="LOSS"}} 1.0' in lines
    assert f"tidemark_audit_lost_records{of}}} 12.0" in lines
    assert f"tidemark_audit_coverage_ratio{of}}} 0.9981" in lines
    assert f'tidemark_audit_findings{of},severity="critical"}} 1.0' in lines
    assert f'tidemark_audit_error_budget_remaining_ratio{of},rule="R1"}} 0.5' in lines
    assert any(line.startswith("tidemark_audit_last_success_timestamp_seconds{") for line in lines)
