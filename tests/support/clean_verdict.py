"""The verdict of `tidemark verify` on a load of a real cluster: every field of it must be clean.

Pure, so that what it must not overlook is tested without a cluster
(`tests/unit/chaos/test_clean_verdict.py`).
"""

from collections.abc import Iterator

import msgspec
from tidemark_chaos.verification import ReplicaComparison, VerifyReport

ENOUGH_RECORDS = 100


def clean_verdict(code: int, out: str, err: str) -> VerifyReport:
    """What `tidemark verify -o json` said, if nothing in it speaks against the brokers.

    It judges as the demo does (`story.demo_report`, its notes), and there is no reason for any
    count above 0 in what these tests do: their loads ask for acks=all of topics without unclean
    elections, compaction or retention within a run, and a kill, a cut, a roll or a move excuses no
    broken promise. Not even anomalies that the demo only reports (`history.REPORTED_ONLY`) may be
    there: nothing is sent with other acks, and what is in doubt is not sent again, so no record
    may be there twice although its producer is not idempotent.

    Left alone: `unknown` and `unknown_found`, as a blow meets requests on their way, whose records
    may be there or not; latencies, the write gap and the read lag, which are durations.
    """
    try:
        report = msgspec.json.decode(out, type=VerifyReport)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise AssertionError(f"no verdict, exit code {code}: {out}{err}") from error
    found = list(flaws(report))
    if code != 0:
        found.append(f"exit code {code}: {err.strip()}")
    assert found == [], "\n".join([*found, out])
    return report


def flaws(report: VerifyReport) -> Iterator[str]:
    """One sentence each."""
    verdict = report.verdict
    if verdict.acknowledged <= ENOUGH_RECORDS:
        yield f"only {verdict.acknowledged} records acknowledged: the load proves nothing"
    if verdict.found != verdict.acknowledged:
        yield f"{verdict.found} of {verdict.acknowledged} acknowledged records found"
    for name in ("lost", "duplicated", "refused_found", "misplaced", "read_otherwise"):
        if (count := getattr(verdict, name)) != 0:
            yield f"{name}: {count}"
    yield from verdict.complaints
    yield from verdict.examples
    for anomaly in report.anomalies:
        yield f"{anomaly.name} ({anomaly.count}): {'; '.join(anomaly.samples[:2])}"
    if not report.replicas:
        yield "no replicas compared"
    for comparison in report.replicas:
        yield from _differences(comparison)


def _differences(comparison: ReplicaComparison) -> Iterator[str]:
    name = f"partition {comparison.partition} below offset {comparison.to_offset}"
    for sentence in comparison.missing:
        yield f"{name}: {sentence}"
    if len(comparison.digests) < 2:
        yield f"{name}: nothing to compare in {len(comparison.digests)} replicas"
    digests = {digest.broker_id: digest.sha256 for digest in comparison.digests}
    if len(set(digests.values())) > 1:
        yield f"{name}: replicas differ: {digests}"
