"""Audit from Prometheus samples alone how well replication kept its promises.

The audit reads what Prometheus stored or exported, with Spark or without, and imports neither
broker nor operator: it shares no code with what it judges.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark_audit.audit import run
    from tidemark_audit.results import AuditResult, Verdict

__all__ = ["AuditResult", "Verdict", "run"]


def __getattr__(name: str) -> Any:
    """Late: Spark's workers must not have Arrow before they are forked (engines.daemon)."""
    if name == "run":
        from tidemark_audit import audit

        return audit.run
    if name in __all__:
        from tidemark_audit import results

        return getattr(results, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
