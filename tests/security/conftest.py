"""One closed cluster with TLS, and a client that behaves, for all attempts of a worker."""

import json
from collections.abc import Iterator

import pytest
from tidemark_operator.security.local_roles import ROLES_FILE
from tidemark_operator.security.local_users import FIRST_USERS, create_users

from tests.security.attacker import MALLORIES, Attacker, Bystander
from tests.support.local_cluster import ORDERS, LocalCluster, running
from tests.support.waiting import wait_for

ROLES = """
users:
  "tidemark:user:admin": [{resources: ["*"], verbs: ["*"]}]
  "tidemark:user:producer": [{resources: [topics], verbs: [produce, describe]}]
  "tidemark:user:consumer": [{resources: [topics, consumergroups], verbs: [consume, describe]}]
groups:
  mallories:
    - {resources: [topics], resourceNames: [own], verbs: [produce, consume, describe]}
    - {resources: [consumergroups], resourceNames: [own], verbs: [consume, describe]}
"""
TOPICS = f"""{ORDERS}
---
apiVersion: tidemark.dev/v1alpha1
kind: Topic
metadata: {{name: own}}
spec: {{partitions: 1, replicationFactor: 3}}
---
apiVersion: tidemark.dev/v1alpha1
kind: Topic
metadata: {{name: secret-plans}}
spec: {{partitions: 1, replicationFactor: 3}}
"""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    path = tmp_path_factory.mktemp("attacked")
    data_dir = path / "data"
    data_dir.mkdir()
    create_users(data_dir, (*FIRST_USERS, *MALLORIES))
    file = data_dir / "users.json"
    users = json.loads(file.read_bytes())["users"]
    changed = [
        user | ({"groups": ["mallories"]} if user["name"] in MALLORIES else {}) for user in users
    ]
    file.write_text(json.dumps({"users": changed}))
    (data_dir / ROLES_FILE).write_text(ROLES)
    environment = {"XDG_STATE_HOME": str(path / "state")}
    with running(
        data_dir, manifest=TOPICS, is_tls=True, arguments=("--auth",), environment=environment
    ) as started:
        for topic in ("orders", "own", "secret-plans"):
            started.wait_until_in_sync(topic)
        yield started


@pytest.fixture(scope="session")
def bystander(cluster: LocalCluster) -> Iterator[Bystander]:
    found = Bystander(cluster)
    wait_for("records of the bystander", lambda: found.acknowledged > 5)
    yield found
    found.stop()


@pytest.fixture
def attacker(cluster: LocalCluster, bystander: Bystander) -> Iterator[Attacker]:
    """An attacker of its own address; the bystander is unharmed."""
    with bystander.unharmed():
        yield Attacker(cluster)
