"""One cluster and one set of programs for all that only produces, reads and seeks."""

from collections.abc import Iterator

import pytest

from tests.compatibility.client_programs import ClientPrograms, client_programs
from tests.support.kafka_cluster import kafka_cluster
from tests.support.local_cluster import LocalCluster


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> ClientPrograms:
    return client_programs(tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    topics = {"codecs": 1, "times": 1, "tools": 3}
    with kafka_cluster(tmp_path_factory.mktemp("clients"), **topics) as found:
        yield found
