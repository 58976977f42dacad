"""Every client that can administrates: a topic made, described, changed, grown and deleted."""

import pytest

from tests.compatibility.client_programs import ClientPrograms, able
from tests.compatibility.programs.command_line import HOUR_MS
from tests.support.local_cluster import LocalCluster
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("client", able("administrates"))
def test_administrates(programs: ClientPrograms, cluster: LocalCluster, client: str) -> None:
    topic = f"made-by-{client}"
    program = programs.run(client, "admin", cluster, topic)
    reported = [(event["name"], event.get("count", event.get("value"))) for event in program.events]
    assert reported == [
        ("partition_count", 2),
        ("retention_ms", HOUR_MS),
        ("partition_count", 4),
        ("retention_ms", 2 * HOUR_MS),
        ("topic_deleted", None),
    ]
    wait_for(
        "the topic's end",
        lambda: topic not in {found["topic"] for found in cluster.pool()["topics"]},
    )
