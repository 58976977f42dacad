"""Spark's structured streaming reads, writes and goes on from its checkpoint when it restarts."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.client_tools import ROOT, tool
from tests.support.kafka_cluster import Sending, bootstrap, kafka_cluster, read_all
from tests.support.local_cluster import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(600)]
COUNT = 300


def copy(cluster: LocalCluster, checkpoint: Path) -> None:
    command = [sys.executable, "-m", "tests.compatibility.programs.spark_program"]
    where = [",".join(bootstrap(cluster)), "orders", "copies", str(checkpoint)]
    done = subprocess.run(
        [*command, *where],
        env={
            **os.environ,
            "JARS": tool("kafka/jars", "spark"),
            "PYTHONPATH": f"{tool('client-tools', 'spark')}:{ROOT}",
            "PYSPARK_PYTHON": sys.executable,
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]


def test_a_restarted_stream_copies_each_record_once(tmp_path: Path) -> None:
    with kafka_cluster(tmp_path / "data", copies=3) as cluster:
        sent: list[bytes] = []
        for run in range(2):
            values = [b"%d.%d" % (run, number) for number in range(COUNT)]
            sending = Sending(cluster, **{"compression.type": "zstd"})
            sending.send(values)
            sending.flush()
            assert sending.failed == []
            sent += values
            copy(cluster, tmp_path / "checkpoint")
            copies = Counter(message.value() for message in read_all(cluster, "copies"))
            assert copies == Counter(sent)
