"""The same job through Spark Connect: a session that knows no JVM, on a server of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.audit_exports import Export, brokers, partition

SECONDS = 600
# A process of its own: pyspark holds one kind of session for each.
PROGRAM = """
import sys
from dataclasses import replace
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession
import tidemark_audit

spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert isinstance(spark, ConnectSession), type(spark)
on_connect, here = (tidemark_audit.run(each, sys.argv[1:]) for each in (spark, None))
spark.stop()
assert on_connect.engine == "spark" and here.engine == "local"
assert replace(on_connect, engine="", wall_seconds=0) == replace(here, engine="", wall_seconds=0)
print(here.verdict)
"""


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 60)
def test_a_session_of_spark_connect_gives_the_answer_of_this_process(tmp_path: Path) -> None:
    export = Export()
    partition(export, in_sync=lambda t: {1, 2, 3} if t < 34_000 else {2, 3})
    brokers(export)
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, export.write(tmp_path / "export.jsonl")],
        check=False, capture_output=True, text=True, timeout=SECONDS,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.split()[-1] == "VIOLATED"
