"""Exports that no Prometheus would write: a finding or an error with the place, never a silent
PASS, never a traceback, and never a loss that nobody had."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tidemark_audit.audit import run
from tidemark_audit.metrics.families import FAMILIES
from tidemark_audit.outputs import write_outputs
from tidemark_audit.results import Verdict
from tidemark_audit.sources.source import SourceError

from tests.support.audit_exports import Export, brokers, json_line, open_metrics, partition

NAME = "tidemark_partition_replicas"
LABELS = {"__name__": NAME, "topic": "a", "topic_id": "x", "partition": "0", "broker": "1"}
AT_MS = 60_000


def an_export() -> Export:
    export = Export()
    partition(export)
    brokers(export)
    return export


ODD = (float("inf"), float("-inf"), float("nan"), 1e300, -5.0, 0.5)


def with_odd_values(name: str) -> Export:
    """One after the other, in every series of the family; one is made if there is none."""
    export = an_export()
    if all(dict(key)["__name__"] != name for key in export.series):
        about = {"topic": "orders", "topic_id": "id-orders", "partition": "0", "broker": "1"}
        detail = FAMILIES[name].detail
        named = {detail: "lag"} if detail else {}
        export.add(name.removeprefix("tidemark_"), 1, **about, **named)
    odd = {AT_MS + 1000 * number: value for number, value in enumerate(ODD)}
    for key, samples in export.series.items():
        if dict(key)["__name__"] == name:
            samples[:] = [(at_ms, odd.get(at_ms, value)) for at_ms, value in samples]
    return export


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_values_that_a_family_cannot_have_are_told_and_nothing_follows_from_them(
    name: str, tmp_path: Path
) -> None:
    """Half a second is a duration, and a clock may be five behind."""
    export = with_odd_values(name)
    series = [samples for key, samples in export.series.items() if dict(key)["__name__"] == name]
    at_all = sum(AT_MS in dict(samples) for samples in series)
    possible = name.endswith("_seconds") + ("skew" in name)
    result = run(None, [str(export.write(tmp_path / "export.jsonl"))])
    (reported,) = [each for each in result.findings if each.subject == name]
    assert reported.sentence.startswith(
        f"{(len(ODD) - possible) * at_all} samples with an invalid value"
    )
    assert result.loss_evidence == ()
    assert result.verdict in (Verdict.INCONCLUSIVE, Verdict.VIOLATED)
    write_outputs(result, tmp_path / "report")


def append(line: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        an_export().write(path)
        with path.open("a") as file:
            file.write(line + "\n")

    return write


def text_with(line: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        open_metrics(an_export(), path)
        path.write_text(path.read_text().replace("# EOF", f"{line}\n# EOF"))

    return write


def tall(times: pa.Array) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        columns = {"__name__": NAME, "topic": "a", "partition": "0", "value": 1.0}
        rows = {name: [value] * len(times) for name, value in columns.items()}
        pq.write_table(pa.table({**rows, "timestamp_ms": times}), path)

    return write


def block(meta: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.mkdir()
        (path / "meta.json").write_text(meta)
        (path / "index").write_bytes(b"\xba\xaa\xd7\x00\x02" + bytes(100))

    return write


BAD = {
    "a time beyond the calendar": append(json_line(LABELS, [(10**17, 3)])),
    "a time before the calendar": append(json_line(LABELS, [(-(10**14), 3)])),
    "a time that is none": append(f'{{"metric": {json.dumps(LABELS)}, "values": [[NaN, "3"]]}}'),
    "three where two belong": append(f'{{"metric": {json.dumps(LABELS)}, "values": [[1, 2, 3]]}}'),
    "a partition that is too large": append(json_line({**LABELS, "partition": "9" * 20}, [(1, 3)])),
    "a partition that is no number": append(json_line({**LABELS, "partition": "0x"}, [(1, 3)])),
    "half a character": append(f'{{"metric": {{"__name__": "{NAME}", "topic": "\\ud800"}}}}'),
    "text at no time": text_with(NAME + '{topic="a",partition="0"} 3 NaN'),
    "text beyond all times": text_with(NAME + '{topic="a",partition="0"} 3 1e300'),
    "text beyond the calendar": text_with(NAME + '{topic="a",partition="0"} 3 1e13'),
    "text of two fields": text_with(NAME + " 3"),
    "text with its end in the middle": text_with("# EOF\n" + NAME + '{partition="0'),
    "a row without a time": tall(pa.array([None, 5], pa.int64())),
    "rows beyond all times": tall(pa.array([-(2**63), 2**63 - 1], pa.int64())),
    "rows of whole seconds": tall(pa.array([1_700_000_000, 1_700_000_015], pa.int64())),
    "rows at infinity": tall(pa.array([1.5, float("inf")])),
    "a block of a list": block("[]"),
    "a block of nothing": block("null"),
    "a block with odd times": block('{"minTime": 0, "maxTime": 1e999}'),
    "a block with an odd owner": block('{"minTime": 0, "maxTime": 9, "thanos": 5}'),
    "a block cut short": block('{"minTime": 0, "max'),
    "a block without an index": block('{"minTime": 0, "maxTime": 9}'),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_read_is_an_error_with_its_place(what: str, tmp_path: Path) -> None:
    path = tmp_path / "bad"
    BAD[what](path)
    with pytest.raises(SourceError) as failed:
        run(None, [str(path)])
    assert str(path) in failed.value.place
