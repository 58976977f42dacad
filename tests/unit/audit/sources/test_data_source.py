"""`spark.read.format("prometheus")`, as a table and as a stream, and the notebook of the docs."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tidemark_audit.audit import run
from tidemark_audit.outputs import tables_of
from tidemark_audit.sources.data_source import PrometheusDataSource

from tests.support.audit_exports import Export, brokers, partition

pytestmark = pytest.mark.timeout(300)


def an_export(path: Path) -> Path:
    export = Export(length_ms=60_000)
    partition(export, in_sync=lambda t: {1, 2} if 20_000 <= t < 30_000 else {1, 2, 3})
    brokers(export)
    return export.write(path / "export.jsonl")


def test_samples_are_a_table_and_a_stream(tmp_path: Path, spark: SparkSession) -> None:
    path = an_export(tmp_path)
    spark.dataSource.register(PrometheusDataSource)
    table = spark.read.format("prometheus").option("start", "10000").load(str(path))
    isr = table.filter(F.col("metric") == "tidemark_partition_in_sync_replicas")
    found = {row.value: row["count"] for row in isr.groupBy("value").count().collect()}
    assert found == {2.0: 10, 3.0: 40}
    stream = spark.readStream.format("prometheus").option("start", "0").load(str(path))
    kept, marks = tmp_path / "kept", tmp_path / "marks"
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(kept))
        .option("checkpointLocation", str(marks))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)  # a clock that goes on is no new data for ever
    of_stream = spark.read.parquet(str(kept))
    assert of_stream.count() == spark.read.format("prometheus").load(str(path)).count()


def test_a_notebook_goes_on_with_the_tables(tmp_path: Path, spark: SparkSession) -> None:
    result = run(spark, [str(an_export(tmp_path))])
    intervals = spark.createDataFrame(tables_of(result)["intervals"])
    worst = intervals.filter("kind = 'under-replicated'").selectExpr("end_ms - start_ms AS ms")
    assert [row.ms for row in worst.collect()] == [10_000]
