"""Exports as people really have them: other forms of the same samples give the same audit, and
what is not read is named, with what to do."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tidemark_audit.audit import run
from tidemark_audit.results import AuditResult
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.source import SourceError
from tidemark_cli.audit.options import time_ms
from tidemark_client.errors import CommandFailed

from tests.support.audit_exports import Export, brokers, open_metrics, partition


def an_export() -> Export:
    export = Export(length_ms=60_000)
    partition(export)
    brokers(export)
    return export


def comparable(result: AuditResult) -> AuditResult:
    return replace(result, engine="", wall_seconds=0.0, sources=())


EXPECTED: list[AuditResult] = []


def expected(tmp_path: Path) -> AuditResult:
    if not EXPECTED:
        EXPECTED.append(run(None, [str(an_export().write(tmp_path / "expected.jsonl"))]))
    return comparable(EXPECTED[0])


def series_list() -> list[dict[str, Any]]:
    return [
        {
            "metric": dict(key),
            "values": [[at_ms / 1000, repr(float(value))] for at_ms, value in samples],
        }
        for key, samples in an_export().series.items()
    ]


def answer(series: list[dict[str, Any]]) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "matrix", "result": series}}


def halves() -> tuple[dict[str, Any], dict[str, Any]]:
    series = series_list()
    return answer(series[::2]), answer(series[1::2])


def dump() -> str:
    lines = []
    for key, samples in an_export().series.items():
        labels = ", ".join(f'{name}="{value}"' for name, value in key)
        lines += [f"{{{labels}}} {value:g} {at_ms}" for at_ms, value in samples]
    about = ('{__name__="go_gc_seconds", job="x"}', '{__name__="tidemark_broker_epoch", a="b"}')
    histograms = [f"{about[0]} {{count:3, sum:1.5, [-1,1]:3}} 1000", f"{about[1]} {{count:3}} 1000"]
    return "\n".join([*histograms, *lines, ""])


def with_exemplars(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            line += ' # {trace_id="a # {b"} 0.5 1.5'
        lines.append(line)
    foreign = 'http_seconds_bucket{le="0.1",path="/a # {b"} 8 1.5 # {trace_id="KOO5"} 0.05 1.5'
    return "\n".join(["# TYPE http_seconds histogram", foreign, "go_info 1", *lines, ""])


def text() -> str:
    lines = []
    for key, samples in sorted(an_export().series.items()):
        labels = dict(key)
        name = labels.pop("__name__")
        inner = ",".join(f'{label}="{value}"' for label, value in labels.items())
        lines += [f"{name}{{{inner}}} {float(value)!r} {at / 1000:.3f}" for at, value in samples]
    return "\n".join([*lines, "# EOF", ""])


FORMS: dict[str, Callable[[], str]] = {
    "pretty-printed": lambda: json.dumps(answer(series_list()), indent=2),
    "pretty-printed with sorted keys": lambda: json.dumps(
        answer(series_list()), indent=4, sort_keys=True
    ),
    "pretty-printed, one after the other": lambda: "\n".join(
        json.dumps(half, indent=2) for half in halves()
    ),
    "a bare array": lambda: json.dumps(series_list()) + "\n",
    "a pretty-printed array": lambda: json.dumps(series_list(), indent=1),
    "arrays without a line between": lambda: (
        json.dumps(series_list()[::2]) + json.dumps(series_list()[1::2])
    ),
    "answers without a line between": lambda: "".join(json.dumps(half) for half in halves()),
    "lines, of which one holds two": lambda: (
        "\n".join(json.dumps(series) for series in series_list()[2:])
        + "\n"
        + "".join(json.dumps(series) for series in series_list()[:2])
    ),
    "a dump of promtool": dump,
    "text with exemplars": lambda: with_exemplars(text()),
}


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_text_gives_the_same_audit(
    form: str, is_packed: bool, tmp_path: Path
) -> None:
    path = tmp_path / "export"
    data = FORMS[form]().encode()
    path.write_bytes(gzip.compress(data) if is_packed else data)
    found = comparable(run(None, [str(path)]))
    assert replace(found, notes=expected(tmp_path).notes) == expected(tmp_path)


def test_a_dump_is_read_with_its_histograms_counted(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_text(dump())
    result = run(None, [str(path)])
    assert [each.skipped_histogram_series for each in result.sources] == [2]
    note = "2 series of native histograms in the files were ignored."
    assert result.notes[-1] == note
    without = replace(comparable(result), notes=expected(tmp_path).notes)
    assert without == expected(tmp_path)


@pytest.mark.parametrize("name", ["http_request_seconds", "tidemark_broker_epoch"])
def test_series_of_native_histograms_are_left_out_and_counted(name: str, tmp_path: Path) -> None:
    """Of the first, also where it is a family that the audit reads as numbers."""
    histogram = {
        "metric": {"__name__": name, "broker": "9"},
        "histograms": [[1.0, {"count": "1", "sum": "0.5", "buckets": [[0, "0.4", "0.6", "1"]]}]],
    }
    path = tmp_path / "export.json"
    path.write_text(json.dumps(answer([histogram, *series_list()])))
    result = run(None, [str(path)])
    assert [each.skipped_histogram_series for each in result.sources] == [1]
    assert (result.verdict, result.findings) == (
        expected(tmp_path).verdict,
        expected(tmp_path).findings,
    )


def read(path: Path, data: bytes) -> SourceError:
    path.write_bytes(data)
    with pytest.raises(SourceError) as failed:
        run(None, [str(path)])
    assert str(path) in failed.value.place
    return failed.value


def a_series(**members: Any) -> bytes:
    labels = {"__name__": "tidemark_broker_epoch", "broker": "1"}
    return json.dumps({"metric": labels, **members}).encode() + b"\n"


EPOCH = b'tidemark_broker_epoch{broker="1"} 7 '
NOW_MS = 1_700_000_000_000
IN_ANOTHER_UNIT = {
    "JSON in milliseconds": (a_series(values=[[NOW_MS, "7"]]), "milliseconds"),
    "JSON in nanoseconds": (a_series(values=[[NOW_MS * 10**6, "7"]]), "nanoseconds"),
    "VictoriaMetrics' in seconds": (
        a_series(values=[7], timestamps=[NOW_MS // 1000]),
        "seconds",
    ),
    "VictoriaMetrics' in microseconds": (
        a_series(values=[7], timestamps=[NOW_MS * 1000]),
        "microseconds",
    ),
    "text in milliseconds": (EPOCH + b"%d\n# EOF\n" % NOW_MS, "milliseconds"),
    "a dump in microseconds": (
        b'{__name__="tidemark_broker_epoch", broker="1"} 7 %d\n' % (NOW_MS * 1000),
        "microseconds",
    ),
}


@pytest.mark.parametrize("what", IN_ANOTHER_UNIT)
def test_times_in_another_unit_are_refused_with_its_name(what: str, tmp_path: Path) -> None:
    data, unit = IN_ANOTHER_UNIT[what]
    assert f"({unit}?)" in str(read(tmp_path / "export", data))


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        (pa.array([NOW_MS * 1.0]), "milliseconds"),
        (pa.array([NOW_MS * 1000]), "microseconds"),
    ],
)
def test_times_of_parquet_in_another_unit_are_refused_with_its_name(
    times: pa.Array, unit: str, tmp_path: Path
) -> None:
    path = tmp_path / "tall"
    columns = {"__name__": "tidemark_broker_epoch", "broker": "1", "value": 1.0}
    pq.write_table(pa.table({**{name: [v] for name, v in columns.items()}, "time": times}), path)
    with pytest.raises(SourceError, match=unit):
        run(None, [str(path)])


NOT_READ = {
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(90), "packed by zstd", "zstd -d"),
    "xz": (b"\xfd7zXZ\x00" + bytes(90), "packed by xz", "xz -d"),
    "zip": (b"PK\x03\x04" + bytes(90), "a ZIP archive", "unzip"),
    "tar": (b"block/\x00".ljust(257, b"\x00") + b"ustar" + bytes(90), "a tar archive", "tar -xf"),
    "tar in gzip": (
        gzip.compress(b"block/\x00".ljust(257, b"\x00") + b"ustar" + bytes(90)),
        "a tar archive",
        "tar -xf",
    ),
    "UTF-16": ('{"metric": {}}'.encode("utf-16"), "text in UTF-16", "UTF-8"),
    "an index": (b"\xba\xaa\xd7\x00\x02" + bytes(90), "the index of a TSDB block", "directory"),
    "a page": (b"<!doctype html><html>", "a page in HTML", "/api/v1/query"),
    "CSV": (b'"Time","orders-0"\n1700000000000,3\n', "CSV?", "promtool tsdb dump"),
    "nothing": (b"\n", "an empty file", "remove it"),
    "one moment": (
        b'[{"metric":{"__name__":"tidemark_broker_epoch"},"value":[1.5,"7"]}]',
        "one value of each series",
        "query a range",
    ),
    "an answer of one moment": (
        b'{"status":"success","data":{"resultType":"vector","result":[]}}',
        "resultType vector",
        "query a range",
    ),
    "half of a packed file": (gzip.compress(text().encode())[:-40], "EOFError", "complete"),
    "half of an array": (json.dumps(series_list()).encode()[:-40], "truncated", "truncated"),
    "lines, then a document of many": (
        a_series(values=[[1.5, "7"]]) + json.dumps(series_list()[0], indent=1).encode(),
        "truncated",
        "jq -c .",
    ),
    "half of a dump": (dump().encode()[:-5], "no such end", "truncated"),
}


@pytest.mark.parametrize("what", NOT_READ)
def test_what_is_not_read_is_named_with_what_to_do(what: str, tmp_path: Path) -> None:
    data, found, to_do = NOT_READ[what]
    error = read(tmp_path / "export", data)
    assert found in error.found
    assert to_do in error.to_do


@pytest.mark.parametrize(
    "line",
    [
        'http_seconds_bucket{le="0.1"} 8 # {trace_id="KOO5"} 0.05',  # without a time
        "go_info{version=",
        'go_info{a="b"} 1',
    ],
)
def test_lines_of_families_that_the_audit_never_reads_stop_nothing(
    line: str, tmp_path: Path
) -> None:
    path = tmp_path / "text"
    path.write_text(f"{line}\n{text()}")
    assert comparable(run(None, [str(path)])) == expected(tmp_path)


def test_labels_with_quoted_names_are_read(tmp_path: Path) -> None:
    path = open_metrics(an_export(), tmp_path / "text")
    path.write_text(path.read_text().replace("{", '{"k8s.pod"="a # {",'))
    assert comparable(run(None, [str(path)])) == expected(tmp_path)


def test_the_kind_of_a_source_is_told(tmp_path: Path) -> None:
    kinds = []
    for name, data in (("a", dump()), ("b", text()), ("c", json.dumps(series_list(), indent=1))):
        (tmp_path / name).write_text(data)
        kinds.append(sources_at([str(tmp_path / name)])[0].kind)
    assert kinds == ["promtool tsdb dump", "OpenMetrics text", "API JSON"]


def test_a_border_of_the_window_in_milliseconds_is_told_so() -> None:
    with pytest.raises(CommandFailed, match="milliseconds"):
        time_ms(str(NOW_MS), "--start")
    assert time_ms(str(NOW_MS // 1000), "--start") == NOW_MS
