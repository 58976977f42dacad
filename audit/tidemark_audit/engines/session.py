"""Create a Spark session for an audit: small heap, quick start, our own Python in its workers.

Sessions that others made are used as they are; a right answer needs nothing of this module.
"""

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

# The kernel runs in Python: the JVM only plans and moves rows. One collector thread and the quick
# compiler start sooner; C2 would never pay for itself.
JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k", "-Xlog:disable")
DRIVER_MEMORY = "768m"


class NoJava(Exception):
    """There is no Java to start Spark with."""


class MasterAlreadySet(Exception):
    """spark-submit made the session: its master is what counts."""


class NoConnect(Exception):
    """Report that the packages that Spark Connect needs beside pyspark are not installed."""


def spark_session(master: str | None, *, archive_directory: Path | None = None) -> SparkSession:
    """Create a session; `sc://` addresses are Spark Connect, None is local[*].

    Raises NoJava, NoConnect, MasterAlreadySet.
    """
    # Workers of a local master would else be the machine's python3, which lacks our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master is not None and master.startswith("sc://"):
        try:
            return SparkSession.builder.remote(master).getOrCreate()
        except ImportError as error:
            raise NoConnect(str(error)) from error
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if is_submitted and master is not None:
        raise MasterAlreadySet(f"master {master} in addition to the master of spark-submit")
    builder = _configured(SparkSession.builder)
    if is_submitted:
        # spark-submit started this process and made the JVM: master, memory and addresses are its.
        return builder.getOrCreate()
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise NoJava("no Java on this machine")
    options = " ".join((*JVM_OPTIONS, *class_archive_options(archive_directory)))
    builder = (
        builder.master(master or "local[*]")
        .config("spark.driver.memory", DRIVER_MEMORY)
        .config("spark.driver.extraJavaOptions", options)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
    )
    with _quiet_start():
        return builder.getOrCreate()


def _configured(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Set what the audit needs wherever its Spark runs.

    Executors' pods are named after the application: a name of 47 characters would be too long.
    """
    return (
        builder.appName("tidemark-audit")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "8")
        # Each stage is a handful of tasks: planning them again costs more than it saves.
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.python.daemon.module", "tidemark_audit.engines.daemon")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "4096")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.log.level", "ERROR")
    )


@contextlib.contextmanager
def _quiet_start() -> Iterator[None]:
    """Hide the JVM's dozen lines on stderr at its start, unless it fails."""
    with tempfile.TemporaryFile() as said:
        kept = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException:
            said.seek(0)
            os.write(kept, said.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def class_archive_options(directory: Path | None) -> tuple[str, ...]:
    """Java's class-data sharing: the first run writes the archive at its end, later ones map it.

    It halves the start of Spark. Java itself refuses an archive of another Java or class path and
    goes on without; the name holds both so that they do not take turns in rewriting it.
    """
    if directory is None:
        return ()
    jars = Path(pyspark.__file__).parent / "jars"
    words = f"{pyspark.__version__}|{jars}|{os.environ.get('JAVA_HOME', shutil.which('java'))}"
    archive = directory / f"spark-{hashlib.sha256(words.encode()).hexdigest()[:16]}.jsa"
    if archive.exists():
        return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ()
    return (f"-XX:ArchiveClassesAtExit={archive}",)
