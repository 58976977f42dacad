"""Export the results of audits as metrics of the operator, which is always scraped."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from msgspec import UNSET
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidemark_operator.api.replication_audit import AuditStatus
from tidemark_operator.reconcile.audit.schedule import PERIODS, Schedule
from tidemark_operator.reconcile.work_queue import WorkKey

_LABELS = ["namespace", "audit"]


class AuditCollector(Collector):
    def __init__(
        self,
        statuses: Mapping[WorkKey, AuditStatus],
        schedules: Mapping[WorkKey, Schedule],
    ) -> None:
        self._statuses = statuses
        self._schedules = schedules

    def collect(self) -> Iterator[Metric]:
        verdict = GaugeMetricFamily(
            "tidemark_audit_verdict",
            "1 for the verdict of the last run",
            labels=[*_LABELS, "verdict"],
        )
        loss = GaugeMetricFamily(
            "tidemark_audit_loss_detected",
            "1 from a verdict LOSS until a later run finds no loss",
            labels=_LABELS,
        )
        lost = GaugeMetricFamily(
            "tidemark_audit_lost_records",
            "Lower bound of the committed records lost",
            labels=_LABELS,
        )
        coverage = GaugeMetricFamily(
            "tidemark_audit_coverage_ratio",
            "Share of partition time that samples cover",
            labels=_LABELS,
        )
        success = GaugeMetricFamily(
            "tidemark_audit_last_success_timestamp_seconds",
            "Time when a run last reached a verdict",
            labels=_LABELS,
        )
        value = GaugeMetricFamily(
            "tidemark_audit_slo_ratio", "Value that a rule measured", labels=[*_LABELS, "rule"]
        )
        budget = GaugeMetricFamily(
            "tidemark_audit_error_budget_remaining_ratio",
            "Share of a rule's error budget that is left",
            labels=[*_LABELS, "rule"],
        )
        findings = GaugeMetricFamily(
            "tidemark_audit_findings",
            "Findings of the last run, by severity",
            labels=[*_LABELS, "severity"],
        )
        for key, status in list(self._statuses.items()):
            labels = [key.namespace, key.name]
            if status.verdict is not UNSET:
                verdict.add_metric([*labels, status.verdict], 1)
            for condition in status.known_conditions:
                if condition.type == "LossDetected":
                    loss.add_metric(labels, int(condition.status == "True"))
            if status.lost_records is not UNSET:
                lost.add_metric(labels, status.lost_records)
            if status.coverage is not UNSET:
                coverage.add_metric(labels, float(status.coverage.rstrip(" %")) / 100)
            if status.last_success_time is not UNSET:
                at = datetime.fromisoformat(status.last_success_time)
                success.add_metric(labels, at.timestamp())
            for rule in status.rules or ():
                if rule.value is not UNSET:
                    value.add_metric([*labels, rule.rule], rule.value)
                if rule.budget_left is not UNSET:
                    budget.add_metric([*labels, rule.rule], rule.budget_left)
            for text in filter(None, (status.findings or "").replace("none", "").split(", ")):
                count, _, severity = text.partition(" ")
                findings.add_metric([*labels, severity], int(count))
        yield from (verdict, loss, lost, coverage, success, value, budget, findings)
        yield self._due()

    def _due(self) -> Metric:
        due = GaugeMetricFamily(
            "tidemark_audit_due_timestamp_seconds",
            "Time by which a scheduled run has to reach a verdict",
            labels=_LABELS,
        )
        for key, schedule in list(self._schedules.items()):
            status = self._statuses.get(key, AuditStatus())
            since = datetime.fromisoformat(status.last_success_time or schedule.created_time)
            seconds = since.timestamp() + PERIODS * schedule.period_seconds
            due.add_metric([key.namespace, key.name], seconds)
        return due
