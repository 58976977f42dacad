"""The audit's image as a part of Spark on Kubernetes: what it runs for which words, and that this
Spark understands it."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from tidemark_audit.spark_pod import NotFromSpark, command_of
from tidemark_cli.main import main
from tidemark_cli.spark_driver import audit_driver
from tidemark_protocol.audit_summary import decode_summary

from tests.support.audit_exports import Export, brokers, partition

HOME = Path("/spark")
OF_EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
    "SPARK_EXECUTOR_POD_NAME": "daily-exec-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}


def test_other_words_are_an_audit() -> None:
    assert command_of(["--window", "1d", "x"], {}, HOME) == [
        *("tidemark", "audit", "--window", "1d", "x")
    ]


def test_a_driver_is_a_spark_submit_in_this_pod() -> None:
    environment = {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7"}
    arguments = ["driver", "--properties-file", "p", "--class", "C", "local:///a.py", "--x"]
    assert command_of(arguments, environment, HOME) == [
        *("/spark/bin/spark-submit", "--deploy-mode", "client"),
        *("--conf", "spark.driver.bindAddress=10.0.0.7", *arguments[1:]),
    ]


def test_an_executor_has_its_options_in_their_order() -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-D{number}=a b" for number in (10, 9, 0)}
    settings = {"SPARK_CONF_DIR": "/conf", **OF_EXECUTOR, **options}
    command = command_of(["executor"], settings, HOME)
    assert command[:8] == [
        *("java", "-D0=a b", "-D9=a b", "-D10=a b", "-Xms1024m", "-Xmx1024m"),
        *("-cp", "/conf:/spark/jars/*"),
    ]
    assert dict(zip(command[9::2], command[10::2], strict=True)) == {
        "--driver-url": "spark://CoarseGrainedScheduler@127.0.0.1:1",
        "--executor-id": "1", "--cores": "2", "--app-id": "spark-1", "--hostname": "127.0.0.1",
        "--resourceProfileId": "0", "--podName": "daily-exec-1",
    }  # fmt: skip


@pytest.mark.parametrize("word", ["driver", "executor"])
def test_without_spark_around_it_it_says_what_is_missing(word: str) -> None:
    with pytest.raises(NotFromSpark, match=r"expected SPARK_.*, which Spark sets in its pods"):
        command_of([word], {}, HOME)


def run_pod(
    home: Path, *arguments: str, directory: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # the image's has tidemark
    settings = {**os.environ, "PATH": path, "HOME": str(home), **environment}
    command = [sys.executable, "-m", "tidemark_audit.spark_pod", *arguments]
    return subprocess.run(
        command, cwd=directory, env=settings, capture_output=True, text=True, timeout=560
    )


@pytest.mark.timeout(600)
def test_an_audit_reads_and_writes_where_it_was_called(tmp_path: Path) -> None:
    export = Export()
    partition(export)
    brokers(export)
    home, data = tmp_path / "home", tmp_path / "data"
    home.mkdir()
    data.mkdir()
    export.write(data / "export.jsonl")
    words = ("--window", "2m", "--engine", "local", "--fail-on", "no-verdict")
    done = run_pod(home, *words, "--report", "out", "export.jsonl", directory=data)
    assert done.returncode == 0, done.stderr
    assert (data / "out" / "report.json").exists()


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("java")
def test_a_driver_judges_and_leaves_its_summary(tmp_path: Path) -> None:
    """In the session that spark-submit made: its master, and its secret between the processes."""
    export = Export()
    partition(export)
    brokers(export)
    properties = tmp_path / "spark.properties"
    properties.write_text("spark.master=local[2]\nspark.authenticate=true\n")
    summary = tmp_path / "summary"
    done = run_pod(
        tmp_path,
        *("driver", "--properties-file", str(properties)),
        *("--class", "org.apache.spark.deploy.PythonRunner", f"local://{audit_driver.__file__}"),
        *("--window", "2m", "--engine", "spark", "--slo", '{"objectives": {"writable": 0.5}}'),
        *("--summary", str(summary), "--fail-on", "no-verdict"),
        str(export.write(tmp_path / "export.jsonl")),
        SPARK_DRIVER_BIND_ADDRESS="127.0.0.1",
        SPARK_LOCAL_IP="127.0.0.1",
    )
    assert done.returncode == 0, done.stderr
    assert decode_summary(summary.read_bytes()).verdict == "PASS"


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("java")
def test_an_executor_understands_its_words_and_looks_for_the_driver(tmp_path: Path) -> None:
    done = run_pod(tmp_path, "executor", **OF_EXECUTOR, SPARK_LOCAL_IP="127.0.0.1")
    assert done.returncode != 0
    assert "Failed to connect to /127.0.0.1:1" in done.stderr, done.stderr


def test_a_master_beside_that_of_spark_submit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    export = Export()
    partition(export)
    words = ["audit", "--master", "local[2]", str(export.write(tmp_path / "export.jsonl"))]
    assert main(words) == 4
    assert "remove --master, or pass it to spark-submit" in capsys.readouterr().err


def test_spark_for_kubernetes_is_in_the_package() -> None:
    jars = Path(pyspark.__file__).parent / "jars"
    assert [path.name for path in jars.glob("spark-kubernetes_*.jar")] != []
