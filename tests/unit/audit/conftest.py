"""One Spark session for all tests that need one: it takes seconds to start."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tidemark_audit.engines.session import spark_session

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def java() -> None:
    subprocess.run([ROOT / "hack" / "java"], check=True, timeout=280)


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    session = spark_session("local[2]")
    yield session
    session.stop()
