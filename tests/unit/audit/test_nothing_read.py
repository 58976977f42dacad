"""What people are told who get no audit."""

from dataclasses import dataclass
from pathlib import Path

from tidemark_audit.aggregation.samples import SampleBatch, within
from tidemark_audit.nothing_read import reason
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.source import Source, SourceError, Window

from tests.support.audit_exports import Export, brokers, open_metrics

BASE_MS = 1_700_000_000_000
SETTLE_MS = 300_000


@dataclass(frozen=True)
class Live:
    """As a running Prometheus: it looks only where it is asked to."""

    whole: Source

    def first_batch(self, window: Window) -> SampleBatch | None:
        batch = self.whole.first_batch(window)
        assert batch is not None
        return within(batch, window.start_ms, window.end_ms)


def live(tmp_path: Path) -> list[Source]:
    """A cluster that began at BASE_MS."""
    export = Export(length_ms=60_000)
    brokers(export)
    path = open_metrics(export, tmp_path / "text", base_ms=BASE_MS)
    return [Live(sources_at([str(path)])[0])]  # type: ignore[list-item]


def test_a_cluster_that_is_younger_than_the_settled_time_is_told_so(tmp_path: Path) -> None:
    end = BASE_MS - 200_000
    why = reason(live(tmp_path), Window(end - 86_400_000, end), SETTLE_MS)
    assert why.found.startswith("samples from 2023-11-14 22:13:20 on, all younger than 5 min")
    assert "--settle" in why.found
    assert why.to_do == "audit again in 5 min, or now with --settle 15s"


def test_a_window_beside_the_samples_is_told_with_both(tmp_path: Path) -> None:
    why = reason(live(tmp_path), Window(BASE_MS - 120_000, BASE_MS - 60_000), 0)
    assert "2023-11-14 22:13:20 to 2023-11-14 22:14:19" in why.found
    assert "2023-11-14 22:11:20 to 2023-11-14 22:12:20" in why.found
    assert "--window" in why.to_do


def test_a_source_without_any_family_of_ours_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text('go_info{version="1"} 1 1700000000\n# EOF\n')
    why = reason(sources_at([str(path)]), Window(), 0)
    assert why.found == "no samples of metric families that the audit reads"
    assert "tidemark_broker_epoch" in why.to_do


class Broken:
    def first_batch(self, window: Window) -> SampleBatch | None:
        raise SourceError("p", expected="a", found="b", to_do="c")


def test_a_source_that_fails_meanwhile_hides_no_reason(tmp_path: Path) -> None:
    why = reason([Broken()], Window(0, BASE_MS), SETTLE_MS)  # type: ignore[list-item]
    assert "no sample" in why.found
