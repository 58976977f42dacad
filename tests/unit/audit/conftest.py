"""One Spark session for all tests that need one: it takes seconds to start."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tidemark_audit.engines.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session("local[2]")
    yield session
    session.stop()
