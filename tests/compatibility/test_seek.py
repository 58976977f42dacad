"""Every client finds the first record from a time on."""

import time
from collections.abc import Iterator

import pytest

from tests.compatibility.client_programs import CLIENTS, ClientPrograms
from tests.support.kafka_cluster import Sending
from tests.support.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster
FIRST_MS = int(time.time() * 1000)  # what is older than a week goes at the next look


@pytest.fixture(scope="module")
def stamped(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """Records 100 ms apart, one batch each."""
    for number in range(5):
        sending = Sending(cluster)
        stamp = {"timestamp": FIRST_MS + number * 100, "partition": 0}
        sending.send([b"stamped-%d" % number], topic="times", **stamp)
        sending.flush()
        assert sending.failed == []
    yield cluster


@pytest.mark.parametrize("client", CLIENTS)
def test_seeks_by_time(programs: ClientPrograms, stamped: LocalCluster, client: str) -> None:
    program = programs.run(client, "seek", stamped, "times", timestamp=FIRST_MS + 150)
    (found, *_) = program.named("record_data")
    assert (found["partition"], found["offset"], found["value"]) == (0, 2, "stamped-2")
