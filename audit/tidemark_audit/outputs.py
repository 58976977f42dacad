"""Write an audit's directory: report.json, report.html, Markdown, JUnit XML, and tables.

Each table is written as Parquet and as CSV. It holds one row per fact, with nested values
flattened: `topic`, `topic_id`, `partition` for a partition, and lists as text separated by spaces.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from tidemark_audit.report.junit import render_junit
from tidemark_audit.report.markdown import render_markdown
from tidemark_audit.report.page import render_html
from tidemark_audit.results import AuditResult, TopicPartition, to_json

REPORT = "report.json"
PAGE = "report.html"
TABLES = (
    "rules", "findings", "sli_by_topic", "sli_by_partition", "intervals", "follower_lag",
    "lag_bands", "elections", "isr_changes", "loss_evidence", "coverage", "burn", "sources",
)  # fmt: skip
_TYPES: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.string(),
}


def write_outputs(result: AuditResult, directory: Path) -> None:
    """Write all outputs, in place of those of an earlier run.

    Raises OSError.
    """
    tables = directory / "tables"
    tables.mkdir(parents=True, exist_ok=True)
    for name, table in tables_of(result).items():
        pq.write_table(table, tables / f"{name}.parquet", compression="zstd")
        pa_csv.write_csv(table, tables / f"{name}.csv")
    (directory / REPORT).write_bytes(to_json(result))
    (directory / PAGE).write_text(render_html(result), "utf-8")
    (directory / "summary.md").write_text(render_markdown(result), "utf-8")
    (directory / "junit.xml").write_bytes(render_junit(result))


def tables_of(result: AuditResult) -> Mapping[str, pa.Table]:
    """Return every table by name; `spark.createDataFrame` takes them as they are."""
    described = {field.name: field.type for field in fields(AuditResult)}
    return {name: _table(getattr(result, name), _row_type(described[name])) for name in TABLES}


def _row_type(described: Any) -> type:
    """Return `Row` of `tuple[Row, ...]`."""
    row: type = described.__args__[0]
    return row


def _table(rows: Sequence[Any], row_type: type) -> pa.Table:
    flat = [_flat(row) for row in rows]
    schema = pa.schema(
        [pa.field(name, kind) for field in fields(row_type) for name, kind in _columns(field)]
    )
    return pa.Table.from_pylist(flat, schema=schema)


def _columns(field: Any) -> list[tuple[str, pa.DataType]]:
    if field.type is TopicPartition:
        return [(inner.name, _TYPES[inner.type]) for inner in fields(TopicPartition)]
    kinds: tuple[Any, ...] = getattr(field.type, "__args__", (field.type,))
    plain = [kind for kind in kinds if kind in _TYPES]
    is_list = getattr(field.type, "__origin__", None) is tuple
    return [(field.name, _TYPES[plain[0]] if plain and not is_list else pa.string())]


def _flat(row: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields(row):
        value = getattr(row, field.name)
        if isinstance(value, TopicPartition):
            found |= _partition(value)
        elif isinstance(value, tuple):
            found[field.name] = " ".join(_word(each) for each in value)
        else:
            found[field.name] = value.value if isinstance(value, Enum) else value
    return found


def _partition(value: TopicPartition) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _word(value: Any) -> str:
    if isinstance(value, str | TopicPartition):
        return str(value)
    return msgspec.json.encode(value).decode()
