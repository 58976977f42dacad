"""Spark and this process give one answer, and one error."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tidemark_audit.audit import run
from tidemark_audit.results import AuditResult, Verdict
from tidemark_audit.sources.source import SourceError

from tests.support.audit_exports import Export, brokers, partition

# Starting Spark and its first job take a minute where others work beside us.
pytestmark = pytest.mark.timeout(300)


def comparable(result: AuditResult) -> AuditResult:
    return replace(result, engine="", wall_seconds=0.0)


def test_spark_and_this_process_agree(tmp_path: Path, spark: SparkSession) -> None:
    for number in range(2):
        export = Export()
        partition(
            export,
            number=number,
            leader=lambda t: 1 if t < 30_000 else None if t < 34_000 else 2,
            in_sync=lambda t: {1, 2, 3} if t < 34_000 else {2, 3},
            epoch=lambda t: 5 if t < 34_000 else 6,
            is_up=lambda b, t: b != 1 or t < 30_000,
        )
        if number == 0:
            brokers(export)
        export.write(tmp_path / f"{number}.jsonl")
    on_spark = run(spark, [str(tmp_path)])
    assert on_spark.verdict is Verdict.VIOLATED
    assert comparable(on_spark) == comparable(run(None, [str(tmp_path)]))


def test_a_workers_source_error_reaches_the_driver_with_its_place(
    tmp_path: Path, spark: SparkSession
) -> None:
    export = Export()
    partition(export)
    path = export.write(tmp_path / "export.jsonl")
    whole = path.stat().st_size
    with path.open("a") as file:
        file.write('{"metric": {"__name__": "cut')
    # The interval is given, so that nothing but a worker reads the file.
    with pytest.raises(SourceError) as failed:
        run(spark, [str(path)], interval_ms=1000)
    assert failed.value.place == f"{path}, byte {whole}"
