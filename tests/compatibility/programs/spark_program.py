"""Spark's structured streaming: what is in one topic and not yet copied goes to another.

python -m tests.compatibility.programs.spark_program BOOTSTRAP FROM TO CHECKPOINT_DIRECTORY

It ends when it has copied what there was; where it was stands in the checkpoint. JARS names the
directory of the connector's jars (`hack/kafka/jars spark`).
"""

import os
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

LIMIT_SECONDS = 300


def connector() -> str:
    """The jars that Spark does not bring itself, in whatever version."""
    brought = {name_of(path) for path in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    found = sorted(Path(os.environ["JARS"]).glob("*.jar"))
    return ",".join(str(path) for path in found if name_of(path) not in brought)


def name_of(jar: Path) -> str:
    return jar.stem.rpartition("-")[0]


def copy(bootstrap: str, source: str, sink: str, checkpoint: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.jars", connector())
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    where = {"kafka.bootstrap.servers": bootstrap}
    begin = {"subscribe": source, "startingOffsets": "earliest"}
    stream = spark.readStream.format("kafka").options(**where, **begin).load()
    writing = stream.select("key", "value").writeStream.format("kafka").options(**where, topic=sink)
    query = writing.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(LIMIT_SECONDS), f"not done within {LIMIT_SECONDS} s"
    spark.stop()


if __name__ == "__main__":
    copy(*sys.argv[1:])
