"""What is counted between two scrapes, and counters that two servers stored."""

from collections.abc import Callable
from pathlib import Path

from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult, Outcome
from tidemark_audit.sources.detect import sources_at

from tests.support.audit_exports import Export, brokers, partition

LENGTH_MS = 1_800_000
STEP_MS = 15_000
ORDERS = {"topic": "orders", "topic_id": "id-orders", "partition": "0"}
PAIR = ("prometheus-0", "prometheus-1")


def checked_proposal(export: Export, path: Path) -> AuditResult:
    return audit(LocalEngine(), sources_at([str(export.write(path / "export.jsonl"))]))


def quiet(in_sync: Callable[[int], set[int]] = lambda t: {1, 2, 3}) -> Export:
    export = Export(length_ms=LENGTH_MS, step_ms=STEP_MS)
    partition(export, in_sync=in_sync, without=frozenset({"partition_leader_elections_total"}))
    brokers(export)
    return export


def counted(export: Export, shrinks: Callable[[int], int], expands: Callable[[int], int]) -> Export:
    export.add("partition_isr_shrinks_total", shrinks, broker="1", reason="lag", **ORDERS)
    export.add("partition_isr_expands_total", expands, broker="1", **ORDERS)
    return export


def elected(export: Export, kind: str, number: Callable[[int], int]) -> Export:
    about = {"pool": "default/pool", **ORDERS}
    export.add("partition_leader_elections_total", number, kind=kind, **about)
    return export


def churn(result: AuditResult) -> tuple[Outcome, str]:
    return next((each.outcome, each.measured) for each in result.rules if each.rule == "R7")


def test_flaps_between_two_scrapes_are_counted_by_the_leader(tmp_path: Path) -> None:
    """Every scrape finds the set whole."""

    def twice(at_ms: int) -> int:
        return 4 + (at_ms >= 600_000) + (at_ms >= 900_000)

    result = checked_proposal(counted(quiet(), twice, twice), tmp_path)
    assert churn(result) == (Outcome.VIOLATED, "at most 2 flaps and 0 leader moves of a partition")


def test_who_was_out_before_and_comes_back_as_another_leaves_is_no_flap(tmp_path: Path) -> None:
    export = quiet(lambda t: {1, 2} if t < 600_000 else {1, 3} if t < 1_200_000 else {1, 2, 3})
    counted(
        export,
        lambda t: 1 + (t >= 600_000),
        lambda t: 0 + (t >= 600_000) + (t >= 1_200_000),
    )
    assert churn(checked_proposal(export, tmp_path))[1].startswith("at most 0 flaps")


def test_leader_moves_between_two_scrapes_are_counted_by_the_operator(tmp_path: Path) -> None:
    """There and back again, thrice: no scrape saw another leader."""
    export = elected(quiet(), "clean", lambda t: 1 + 6 * (t >= 600_000))
    assert churn(checked_proposal(export, tmp_path))[1].endswith("6 leader moves of a partition")


def test_planned_moves_that_are_counted_are_free(tmp_path: Path) -> None:
    export = elected(quiet(), "planned", lambda t: 1 + 6 * (t >= 600_000))
    assert churn(checked_proposal(export, tmp_path))[0] is Outcome.KEPT


def corrupt(export: Export, scrapes: list[dict[str, str]]) -> Export:
    for offset_ms, scrape in enumerate(scrapes):
        export.add(
            "crc_failures_total", lambda t: 3 * (t >= 600_000),
            offset_ms=1 + 700 * offset_ms, where="fetch", **scrape,
        )  # fmt: skip
    return export


def failures(result: AuditResult) -> list[str]:
    return [each.sentence for each in result.findings if "checksum" in each.sentence]


def test_damaged_batches_that_two_servers_stored_are_counted_once(tmp_path: Path) -> None:
    scrapes = [{"prometheus_replica": name, "instance": "10.0.0.1:8080"} for name in PAIR]
    result = checked_proposal(corrupt(quiet(), scrapes), tmp_path)
    assert failures(result) == ["3 record batches failed the checksum in fetch"]


def test_damaged_batches_of_two_brokers_are_added(tmp_path: Path) -> None:
    scrapes = [{"instance": f"10.0.0.{broker}:8080"} for broker in (1, 2)]
    result = checked_proposal(corrupt(quiet(), scrapes), tmp_path)
    assert failures(result) == ["6 record batches failed the checksum in fetch"]
