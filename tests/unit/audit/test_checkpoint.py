"""Scheduled audits read only what is new, and say what they would have said of everything."""

from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_audit.audit import AuditRequest, audit_what_if
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult, Verdict
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.prometheus import Prometheus
from tidemark_audit.sources.source import SourceError, Window

from tests.support.audit_exports import Export, brokers, partition
from tests.unit.audit.small_prometheus import SmallPrometheus, serving


def an_export(path: Path) -> Path:
    export = Export()
    partition(
        export,
        leader=lambda t: 1 if t < 58_000 else None if t < 62_000 else 2,
        in_sync=lambda t: {1, 2, 3} if t < 62_000 else {2, 3},
        epoch=lambda t: 5 if t < 62_000 else 6,
        is_up=lambda b, t: b != 1 or t < 58_000,
    )
    brokers(export)
    return export.write(path / "export.jsonl")


def audited(path: Path, window: Window, checkpoint: Path | None) -> AuditResult:
    requested = AuditRequest(window, checkpoint=checkpoint)
    result, _ = audit_what_if(LocalEngine(), sources_at([str(path)]), requested, None)
    return replace(result, wall_seconds=0.0)


def test_three_runs_with_a_checkpoint_are_one_audit(tmp_path: Path) -> None:
    path, kept = an_export(tmp_path), tmp_path / "kept"
    # The second border lies in the middle of the failover.
    for end in (20_000, 60_000, 119_000):
        result = audited(path, Window(0, end), kept)
    assert result == audited(path, Window(0, 119_000), None)
    assert len(list(kept.glob("summaries-*"))) == 3


def test_what_left_the_window_is_removed_and_the_window_starts_where_a_file_does(
    tmp_path: Path,
) -> None:
    path, kept = an_export(tmp_path), tmp_path / "kept"
    audited(path, Window(0, 30_000), kept)
    audited(path, Window(0, 60_000), kept)
    result = audited(path, Window(30_000, 90_000), kept)
    assert sorted(each.name for each in kept.iterdir()) == [
        "look-back.parquet",
        "summaries-30000-60000.parquet",
        "summaries-60000-90000.parquet",
    ]
    assert result == audited(path, Window(30_000, 90_000), None)


def test_a_window_that_moves_by_any_step_is_read_once_and_starts_at_a_border(
    tmp_path: Path,
) -> None:
    """As a schedule's windows do: none ends where another one begins."""
    path, kept = an_export(tmp_path), tmp_path / "kept"
    for start in (0, 7_001, 13_500, 29_999, 40_000):
        result = audited(path, Window(start, start + 60_000), kept)
    # The first file holds what lay in the first window, and is there for as long as it is needed.
    assert (result.window_start_ms, result.window_end_ms) == (0, 100_000)
    assert result == audited(path, Window(0, 100_000), None)
    result = audited(path, Window(60_000, 110_000), kept)
    assert result.window_start_ms == 60_000
    assert "summaries-0-60000.parquet" not in {each.name for each in kept.iterdir()}


def test_the_window_of_a_running_prometheus_starts_an_eighth_early_at_most(tmp_path: Path) -> None:
    export = Export(length_ms=200_000)
    partition(export)
    brokers(export)
    base_ms = 1_700_000_000_000
    kept = tmp_path / "kept"
    with serving(SmallPrometheus(export, base_ms=base_ms)) as url:
        for moved_ms in (0, 10_001, 55_000, 77_777):
            window = Window(base_ms + moved_ms, base_ms + moved_ms + 80_000)
            requested = AuditRequest(window, interval_ms=1000, checkpoint=kept)
            result, _ = audit_what_if(LocalEngine(), [Prometheus(url)], requested, None)
            assert result.window_end_ms == window.end_ms
            early_ms = base_ms + moved_ms - result.window_start_ms
            assert 0 <= early_ms <= 10_000
            assert result.verdict is Verdict.PASS
        requested = AuditRequest(
            Window(result.window_start_ms, result.window_end_ms), interval_ms=1000
        )
        whole, _ = audit_what_if(LocalEngine(), [Prometheus(url)], requested, None)
    assert replace(result, wall_seconds=0.0) == replace(whole, wall_seconds=0.0)


def test_another_sources_files_are_not_removed_and_later_ones_not_written_over(
    tmp_path: Path,
) -> None:
    path, kept = an_export(tmp_path), tmp_path / "kept"
    audited(path, Window(0, 30_000), kept)
    other = path.rename(tmp_path / "other.jsonl")
    with pytest.raises(SourceError, match="not of"):
        audited(other, Window(60_000, 90_000), kept)
    other.rename(path)
    with pytest.raises(SourceError, match="later than the end of the window"):
        audited(path, Window(0, 20_000), kept)
    assert [each.name for each in kept.glob("summaries-*")] == ["summaries-0-30000.parquet"]


def test_a_checkpoint_without_a_window_or_a_directory_is_refused(tmp_path: Path) -> None:
    path = an_export(tmp_path)
    with pytest.raises(SourceError, match="use --window"):
        audited(path, Window(), tmp_path / "kept")
    with pytest.raises(SourceError, match="File exists"):
        audited(path, Window(0, 30_000), path)


def test_a_checkpoint_of_another_source_or_damaged_is_refused(tmp_path: Path) -> None:
    path, kept = an_export(tmp_path), tmp_path / "kept"
    audited(path, Window(0, 30_000), kept)
    other = path.rename(tmp_path / "other.jsonl")
    with pytest.raises(SourceError, match="not of"):
        audited(other, Window(0, 60_000), kept)
    (file,) = kept.glob("summaries-*")
    file.write_bytes(b"PAR1")
    with pytest.raises(SourceError, match="summaries-0-30000"):
        audited(other, Window(0, 60_000), kept)
