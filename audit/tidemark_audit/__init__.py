"""The audit: how well replication kept its promises, judged from Prometheus samples alone.

It reads what Prometheus stored or exported, on Spark or without, and imports neither broker nor
operator: a judge shares no code with the judged.
"""

from tidemark_audit.audit import audit, run
from tidemark_audit.results import AuditResult, Verdict

__all__ = ["AuditResult", "Verdict", "audit", "run"]
