"""Every command that reaches brokers, over TLS: as a user with rights, without rights, unknown."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tidemark_operator.security.local_roles import ROLES_FILE

from tests.support.local_cluster import LocalCluster, get_json, running
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
TIDEMARK = str(ROOT / ".venv/bin/tidemark")
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

# `viewer` sees everything and may change and read nothing; `consumer` may see no pool.
ROLES = """
users:
  "tidemark:user:admin":
    - {resources: ["*"], verbs: ["*"]}
  "tidemark:user:consumer":
    - {resources: [topics, consumergroups], verbs: [consume, describe]}
  "tidemark:user:viewer":
    - {resources: [topics, consumergroups, brokerpools], verbs: [describe]}
"""


@dataclass(frozen=True)
class Command:
    """A command, who may not run it, and what the refusal names."""

    words: str
    denied: str
    verb: str
    resource: str

    @property
    def title(self) -> str:
        return " ".join(self.words.split()[:2])


ALLOWED = (
    "produce orders hello",
    "consume orders --from earliest --max 1",
    "consume orders --from earliest --max 1 --group billing",
    "groups list",
    "groups describe billing",
    "groups reset billing --to earliest",
    "groups reset billing --to -1h",
    "topics list",
    "topics describe orders",
    "topics create more --partitions 1",
    "status",
    "isr",
    "why orders 0",
    "events",
    "load orders --seconds 1 --group-consumers 1 --out {out}/load.ndjson",
    "verify --load {out}/load.ndjson",
    "bench http --seconds 1 --records 1 --connections 2",
    "groups delete billing",
    "topics delete more",
)
DENIED = (
    Command("produce orders hello", "viewer", "produce", "topics.tidemark.dev/orders"),
    Command("consume orders --max 1", "viewer", "consume", "topics.tidemark.dev/orders"),
    Command(
        "consume orders --max 1 --group billing",
        *("viewer", "consume", "consumergroups.tidemark.dev/billing"),
    ),
    Command("groups list", "consumer", "describe", "brokerpools.tidemark.dev/default"),
    Command("groups describe billing", "consumer", "describe", "brokerpools.tidemark.dev/default"),
    Command(
        "groups reset billing --to earliest",
        *("viewer", "consume", "consumergroups.tidemark.dev/billing"),
    ),
    Command("groups delete billing", "viewer", "delete", "consumergroups.tidemark.dev/billing"),
    Command(
        "load orders --seconds 1 --idempotent", "nobody", "describe", "topics.tidemark.dev/orders"
    ),
    Command("verify --load {out}/load.ndjson", "viewer", "consume", "topics.tidemark.dev/orders"),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    path = tmp_path_factory.mktemp("closed")
    data = path / "data"
    data.mkdir()
    (data / ROLES_FILE).write_text(ROLES)
    environment = {"XDG_STATE_HOME": str(path / "state")}
    with running(data, is_tls=True, arguments=("--auth",), environment=environment) as started:
        started.wait_until_in_sync()
        yield started


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out")


def tidemark(
    cluster: LocalCluster, words: str, *, user: str, out: Path, server: str = ""
) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMARK_")}
    token_file = cluster.data_dir / "tokens" / user
    return subprocess.run(
        [
            *(TIDEMARK, *words.format(out=out).split()),
            *("--server", server or cluster.controller_url, "--ca-file", str(cluster.ca_file)),
            *(("--token-file", str(token_file)) if user else ()),
        ],
        env=environment | cluster.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_every_command_works_for_a_user_with_rights(cluster: LocalCluster, out: Path) -> None:
    for words in ALLOWED:
        ended = tidemark(cluster, words, user="admin", out=out)
        assert ended.returncode == 0, f"{words}: {ended.stdout[-1000:]}{ended.stderr}"


def test_brokers_alone_are_enough_for_records(cluster: LocalCluster, out: Path) -> None:
    for words in ("produce orders hello", "consume orders --from earliest --max 1", "groups list"):
        ended = tidemark(cluster, words, user="admin", out=out, server=cluster.broker_url(1))
        assert ended.returncode == 0, f"{words}: {ended.stdout[-1000:]}{ended.stderr}"


@pytest.fixture(scope="module")
def billing(cluster: LocalCluster, out: Path) -> str:
    """A group that others would change."""
    for words in (
        "produce orders hello",
        "consume orders --from earliest --max 1 --group billing",
        "load orders --seconds 1 --out {out}/load.ndjson",
    ):
        assert tidemark(cluster, words, user="admin", out=out).returncode == 0, words
    return "billing"


@pytest.mark.parametrize("command", DENIED, ids=lambda command: command.title)
def test_refusal_names_verb_resource_and_rule(
    cluster: LocalCluster, out: Path, billing: str, command: Command
) -> None:
    user = "" if command.denied == "nobody" else command.denied
    ended = tidemark(cluster, command.words, user=user, out=out)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1, said
    if not user:
        assert "--token-file" in said
        return
    assert f"may not {command.verb} {command.resource}" in said
    plural, _, name = command.resource.partition(".tidemark.dev/")
    assert f"resources: [{plural}]" in said
    assert f"verbs: [{command.verb}]" in said
    assert name in said.partition("resourceNames: [")[2]


def test_unknown_client_is_told_how_to_name_a_token(cluster: LocalCluster, out: Path) -> None:
    for words in ("produce orders hello", "consume orders --max 1", "groups list", "status"):
        ended = tidemark(cluster, words, user="", out=out)
        assert ended.returncode == 1, words
        assert "--token-file" in ended.stderr, words


def test_token_file_that_cannot_be_used_is_named(cluster: LocalCluster, out: Path) -> None:
    ended = tidemark(cluster, "produce orders hello", user="missing", out=out)
    assert ended.returncode == 2
    assert "tokens/missing cannot be used" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_live_page_reads_offsets_from_brokers_that_authenticate(
    cluster: LocalCluster, out: Path, billing: str
) -> None:
    """As the operator itself: no user of the file of users is needed for that."""
    context = cluster.context()
    url = f"{cluster.controller_url}/v1/isr"

    def has_all() -> bool:
        read = get_json(f"{url}/groups?pool=default/default", context=context)
        return billing in [each["group"] for each in read["groups"]]

    wait_for("the groups of the page", has_all)
