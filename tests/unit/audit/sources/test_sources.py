"""Every kind of source gives the same audit of the same samples, and says where it is broken."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tidemark_audit.aggregation.samples import STALE
from tidemark_audit.audit import run
from tidemark_audit.results import AuditResult
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.open_metrics import labels_of
from tidemark_audit.sources.source import SourceError, Window, last_sample_ms

from tests.support.audit_exports import Export, brokers, open_metrics, partition, tall_parquet


def a_failover() -> Export:
    export = Export()
    partition(
        export,
        leader=lambda t: 1 if t < 30_000 else None if t < 34_000 else 2,
        in_sync=lambda t: {1, 2, 3} if t < 34_000 else {2, 3},
        epoch=lambda t: 5 if t < 34_000 else 6,
        is_up=lambda b, t: b != 1 or t < 30_000,
    )
    brokers(export)
    return export


def comparable(result: AuditResult) -> AuditResult:
    return replace(result, engine="", wall_seconds=0.0, sources=())


def test_every_kind_of_file_gives_the_same_audit(tmp_path: Path) -> None:
    export = a_failover()
    lines = export.write(tmp_path / "export")
    text = open_metrics(export, tmp_path / "text")
    tall = tall_parquet(export, tmp_path / "tall")
    kinds = [sources_at([str(path)])[0].kind for path in (lines, text, tall)]
    assert kinds == ["API JSON", "OpenMetrics text", "tall Parquet"]
    whole = run(None, [str(lines)])
    counted = sum(len(samples) for samples in export.series.values())
    assert [(s.samples, s.series) for s in whole.sources] == [(counted, len(export.series))]
    expected = comparable(whole)
    assert comparable(run(None, [str(text)])) == expected
    assert comparable(run(None, [str(tall)])) == expected


@pytest.mark.parametrize("kind", ["text", "tall"])
def test_a_file_cut_short_is_an_error_with_its_name(tmp_path: Path, kind: str) -> None:
    export = a_failover()
    path = tmp_path / kind
    (open_metrics if kind == "text" else tall_parquet)(export, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SourceError) as failed:
        run(None, [str(path)])
    assert str(path) in failed.value.place


def test_a_stale_marker_is_one_in_every_kind_of_text(tmp_path: Path) -> None:
    """promtool writes it as NaN, VictoriaMetrics as null: neither is an impossible sample."""
    export = a_failover()
    key = next(key for key in export.series if ("broker", "1") in key)
    export.series[key].append((30_500, float(STALE)))
    text = open_metrics(export, tmp_path / "text")
    assert " nan " in text.read_text().lower()
    lines = export.write(tmp_path / "lines")
    lines.write_text(lines.read_text().replace('"nan"', "null"))
    assert " null" in lines.read_text()
    for path in (text, lines):
        result = run(None, [str(path)])
        assert [f.sentence for f in result.findings if "cannot have" in f.sentence] == []


def test_text_without_times_is_an_exposition_and_no_export(tmp_path: Path) -> None:
    path = tmp_path / "metrics"
    path.write_text('tidemark_broker_epoch{broker="1"} 7\n# EOF\n')
    with pytest.raises(SourceError, match="byte 0"):
        run(None, [str(path)])


def test_labels_with_escapes_braces_and_commas_are_read() -> None:
    assert labels_of(r'up{a="x\"y\\z\n,}",b=""}') == {
        "__name__": "up", "a": 'x"y\\z\n,}', "b": ""
    }  # fmt: skip


def test_an_unknown_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "picture"
    path.write_bytes(b"\x89PNG\r\n")
    with pytest.raises(SourceError, match="picture"):
        sources_at([str(tmp_path)])


def test_the_end_of_a_parquet_file_is_found_in_its_last_row_groups(tmp_path: Path) -> None:
    """The first one cannot even be read."""
    export = Export(length_ms=1_800_000, step_ms=15_000)
    partition(export)
    path = tall_parquet(export, tmp_path / "export.parquet")
    rows = pq.read_table(path).sort_by("timestamp_ms")
    pq.write_table(rows, path, row_group_size=500)
    content = bytearray(path.read_bytes())
    content[4:2000] = bytes(1996)
    path.write_bytes(content)
    (source,) = sources_at([str(path)])
    with pytest.raises(SourceError):
        list(source.slices(Window())[0].read())
    assert last_sample_ms([source]) == 1_785_000


def test_the_newest_of_several_files_counts(tmp_path: Path) -> None:
    export = Export(length_ms=60_000)
    partition(export)
    parquet = tall_parquet(export, tmp_path / "export.parquet")
    later = Export(length_ms=90_000)
    partition(later)
    lines = later.write(tmp_path / "export.jsonl")
    for places in ([parquet, lines], [lines, parquet]):
        assert last_sample_ms(sources_at([str(place) for place in places])) == 89_000
