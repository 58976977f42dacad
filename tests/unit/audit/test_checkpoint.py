"""Scheduled audits read only what is new, and say what they would have said of everything."""

from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_audit.audit import Asked, audit_what_if
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.source import SourceError, Window

from tests.unit.audit.exports import Export, brokers, partition


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
    asked = Asked(window, checkpoint=checkpoint)
    result, _ = audit_what_if(LocalEngine(), sources_at([str(path)]), asked, None)
    return replace(result, wall_seconds=0.0)


def test_three_runs_with_a_checkpoint_are_one_audit(tmp_path: Path) -> None:
    path, kept = an_export(tmp_path), tmp_path / "kept"
    # The second border lies in the middle of the failover.
    for end in (20_000, 60_000, 119_000):
        result = audited(path, Window(0, end), kept)
    assert result == audited(path, Window(0, 119_000), None)
    assert len(list(kept.iterdir())) == 3


def test_what_left_the_window_is_removed_and_the_window_starts_where_a_file_does(
    tmp_path: Path,
) -> None:
    path, kept = an_export(tmp_path), tmp_path / "kept"
    audited(path, Window(0, 30_000), kept)
    audited(path, Window(0, 60_000), kept)
    result = audited(path, Window(30_000, 90_000), kept)
    assert sorted(each.name for each in kept.iterdir()) == [
        "summaries-30000-60000.parquet",
        "summaries-60000-90000.parquet",
    ]
    assert result == audited(path, Window(30_000, 90_000), None)


def test_a_checkpoint_of_another_source_or_damaged_is_refused(tmp_path: Path) -> None:
    path, kept = an_export(tmp_path), tmp_path / "kept"
    audited(path, Window(0, 30_000), kept)
    other = path.rename(tmp_path / "other.jsonl")
    with pytest.raises(SourceError, match="not of"):
        audited(other, Window(0, 60_000), kept)
    (file,) = kept.iterdir()
    file.write_bytes(b"PAR1")
    with pytest.raises(SourceError, match="summaries-0-30000"):
        audited(other, Window(0, 60_000), kept)
