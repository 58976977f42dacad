"""A `tidemark dev --auth` for tests, and the settings of its clients."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidemark_operator.security.local_roles import ROLES_FILE

from tests.support.kafka_cluster import librdkafka_settings
from tests.support.local_cluster import LocalCluster, running

# Every known client may do everything: these tests are about who clients are.
EVERYTHING = """
groups:
  system:authenticated:
    - {resources: ["*"], verbs: ["*"]}
"""


@contextlib.contextmanager
def closed_cluster(data_dir: Path, **settings: Any) -> Iterator[LocalCluster]:
    data_dir.mkdir(parents=True, exist_ok=True)
    (data_dir / ROLES_FILE).write_text(EVERYTHING)
    with running(data_dir, arguments=("--auth",), **settings) as cluster:
        cluster.wait_until_in_sync()
        yield cluster


def users(cluster: LocalCluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(users_file(cluster).read_bytes())["users"]
    return found


def users_file(cluster: LocalCluster) -> Path:
    return cluster.data_dir / "users.json"


def write_users(cluster: LocalCluster, changed: list[dict[str, Any]]) -> None:
    """As a user edits the file; the operator reads it at the next question."""
    new = users_file(cluster).with_suffix(".edited")
    new.write_text(json.dumps({"users": changed}))
    new.replace(users_file(cluster))


def password(cluster: LocalCluster, user: str) -> str:
    return next(str(each["password"]) for each in users(cluster) if each["name"] == user)


def oauth_settings(
    cluster: LocalCluster, user: str = "admin", *, lifetime_s: float = 3600.0, **more: Any
) -> dict[str, Any]:
    """Of librdkafka, by a callback that returns the user's token."""

    def oauth(_: str) -> tuple[str, float]:
        return cluster.token(user), time.time() + lifetime_s

    sasl = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": oauth,
    }
    return librdkafka_settings(cluster, **{**sasl, **more})


def password_settings(
    cluster: LocalCluster, mechanism: str, user: str = "admin", **more: Any
) -> dict[str, Any]:
    sasl = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password(cluster, user),
    }
    return librdkafka_settings(cluster, **{**sasl, **more})
