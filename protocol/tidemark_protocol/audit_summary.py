"""Encode what an audit's pod reports to the operator: its termination message.

Kubernetes keeps 4,096 bytes of what a container wrote to its termination log and shows them in the
pod's status; so the audit needs no rights in the cluster, and the operator no access to reports.
"""

from typing import Any

import msgspec

MAX_SUMMARY_BYTES = 4096
TERMINATION_LOG = "/dev/termination-log"

_SHORTEST_SENTENCE = 80


class MalformedSummary(Exception):
    """A termination message that is no summary; the text says what was found."""


class RuleSummary(msgspec.Struct, frozen=True, kw_only=True):
    rule: str
    outcome: str  # kept, violated, not evaluated
    value: float | None = None
    limit: float | None = None
    budget_left: float | None = None  # of the error budget, 1.0 is all of it


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    id: str  # the finding's, the same in every run
    rule: str
    severity: str
    subject: str
    start_ms: int
    sentence: str


class AuditSummary(msgspec.Struct, frozen=True, kw_only=True):
    verdict: str  # PASS, VIOLATED, LOSS, INCONCLUSIVE, NO-SOURCE
    sentence: str
    window_start_ms: int
    window_end_ms: int
    coverage: float  # share of partition time that somebody looked at
    lost_records: int  # a lower bound
    findings: dict[str, int]  # by severity
    rules: tuple[RuleSummary, ...] = ()
    incidents: tuple[Incident, ...] = ()  # gravest first
    left_out: int = 0  # incidents for which there was no room


def encode_summary(summary: AuditSummary) -> bytes:
    """Encode a summary in MAX_SUMMARY_BYTES: cut sentences, then leave out the least incidents."""
    document = msgspec.json.encode(summary)
    if len(document) > MAX_SUMMARY_BYTES:
        summary = _with_short_sentences(summary)
        document = msgspec.json.encode(summary)
    while len(document) > MAX_SUMMARY_BYTES and summary.incidents:
        summary = msgspec.structs.replace(
            summary, incidents=summary.incidents[:-1], left_out=summary.left_out + 1
        )
        document = msgspec.json.encode(summary)
    if len(document) > MAX_SUMMARY_BYTES:
        raise ValueError(f"summary: expected at most {MAX_SUMMARY_BYTES} bytes without incidents")
    return document


def decode_summary(document: bytes) -> AuditSummary:
    """Decode a summary.

    Raises MalformedSummary.
    """
    try:
        return msgspec.json.decode(document, type=AuditSummary)
    except msgspec.DecodeError as error:
        found = document[:120].decode(errors="replace")
        raise MalformedSummary(
            f"expected the JSON of an audit's summary, found {found!r}: {error}"
        ) from error


def summary_json(summary: AuditSummary) -> dict[str, Any]:
    """Return the summary as plain values; the status converts keys to camelCase."""
    found: dict[str, Any] = msgspec.to_builtins(summary)
    return found


def _with_short_sentences(summary: AuditSummary) -> AuditSummary:
    return msgspec.structs.replace(
        summary,
        sentence=summary.sentence[: 4 * _SHORTEST_SENTENCE],
        incidents=tuple(
            msgspec.structs.replace(
                each,
                sentence=each.sentence[:_SHORTEST_SENTENCE],
                subject=each.subject[:_SHORTEST_SENTENCE],
            )
            for each in summary.incidents
        ),
    )
