"""An hour in which much went wrong, as samples: what the report's pictures are looked at with."""

import math
from pathlib import Path

from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult
from tidemark_audit.sources.detect import sources_at

from tests.support.audit_exports import Export, brokers, json_line, partition

BEGIN_MS = 1_763_726_400_000  # 21 November 2025, 12:00 UTC
HOUR_MS = 3_600_000
STEP_MS = 5000
PLANNED = (600_000, 660_000)  # broker 2 is replaced, in order
KILLED = (1_500_000, 1_590_000)  # broker 3
STALLED = (2_300_000, 2_420_000)  # brokers 2 and 3 are cut off: writes are refused
UNCLEAN = (2_900_000, 2_950_000)  # the last of partition orders-2; then an unclean election
LOST = 1250


def _within(at_ms: int, span: tuple[int, int]) -> bool:
    return span[0] <= at_ms < span[1]


def in_sync(number: int, at_ms: int) -> set[int]:
    if number == 2 and at_ms >= UNCLEAN[1]:
        return {3} if at_ms < UNCLEAN[1] + 60_000 else {1, 3}
    if number == 2 and at_ms >= UNCLEAN[0] - 40_000:
        return {1}
    if _within(at_ms, STALLED):
        return {1}
    away = {
        2: _within(at_ms, (PLANNED[0], PLANNED[1] + 5000 * number)),
        3: _within(at_ms, (KILLED[0], KILLED[1] + 10_000 * number)),
    }
    return {1, 2, 3} - {broker for broker, is_away in away.items() if is_away}


def leader(number: int, at_ms: int) -> int | None:
    if number != 2 or at_ms < UNCLEAN[0]:
        return 1
    return None if at_ms < UNCLEAN[1] else 3


def lag_seconds(number: int, follower: int, at_ms: int) -> float:
    calm = 0.02 + 0.015 * math.sin(at_ms / 130_000 + follower) ** 2
    if follower not in in_sync(number, at_ms):
        return 12.0 + (at_ms % 60_000) / 1000
    return calm if at_ms % 470_000 > 25_000 else 20 * calm


def export() -> Export:
    made = Export(length_ms=HOUR_MS, step_ms=STEP_MS)
    for topic, partitions in (("orders", 6), ("payments", 4), ("shop.clicks.raw", 8)):
        for index in range(partitions):
            _partition(made, topic, index)
    brokers(
        made, planned=lambda b, t: b == 2 and _within(t, (PLANNED[0] - 5000, PLANNED[1] + 40_000))
    )
    return made


def _partition(made: Export, topic: str, index: int) -> None:
    number = index if topic == "orders" else 0
    is_unseen = topic == "payments"
    about = {"topic": topic, "topic_id": f"id-{topic}", "partition": str(index)}
    partition(
        made,
        topic=topic,
        topic_id=f"id-{topic}",
        number=index,
        leader=lambda t: leader(number, t),
        in_sync=lambda t: in_sync(number, t),
        epoch=lambda t: 5 + (number == 2 and t >= UNCLEAN[1]),
        is_up=lambda b, t: not (is_unseen and 3_300_000 <= t < 3_345_000),
        without=frozenset(
            {"follower_caught_up_age_seconds", "partition_election_committed_gap_records"}
        ),
    )
    for broker in (1, 3):

        def leads(at_ms: int, value: float, broker: int = broker) -> float | None:
            return value if leader(number, at_ms) == broker else None

        made.add(
            "partition_election_committed_gap_records",
            lambda t, b=broker: leads(t, LOST if b == 3 else 0, b),
            **about, broker=str(broker),
        )  # fmt: skip
        for follower in {1, 2, 3} - {broker}:
            made.add(
                "follower_caught_up_age_seconds",
                lambda t, b=broker, f=follower: leads(t, lag_seconds(number, f, t), b),
                **about, broker=str(broker), follower=str(follower),
            )  # fmt: skip


def eventful_result(directory: Path) -> AuditResult:
    path = directory / "export.jsonl"
    with path.open("w") as file:
        for key, samples in export().series.items():
            moved = [(BEGIN_MS + at_ms, value) for at_ms, value in samples]
            file.write(json_line(dict(key), moved))
    return audit(LocalEngine(), sources_at([str(path)]))
