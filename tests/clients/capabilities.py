"""What a client can do here, as a table: docs/clients.md, made from the tests themselves.

python -m tests.clients.capabilities

A cell stands for tests of that name with that client, which `make test` runs; a test of the tidy
folder keeps the page as this makes it. What a client lacks is its own lack, with the reason.
"""

import ast
from dataclasses import dataclass
from pathlib import Path

from tests.clients.client_programs import CLIENTS, CODECS, LACKS, ROOT

PAGE = ROOT / "docs" / "clients.md"
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Capability:
    """`test` as file::function."""

    title: str
    test: str
    means: str

    def cell(self, client: str) -> str:
        lack = LACKS.get(self.title, {}).get(client)
        return f"no: {lack}" if lack else "yes"


CAPABILITIES = (
    Capability(
        "administrates",
        "test_admin.py::test_administrates",
        "makes a topic, describes, grows and changes it, deletes it",
    ),
    Capability(
        "produces",
        "test_codecs.py::test_produces",
        f"acks=all in each codec: {', '.join(CODECS)}; the stored batches have that codec",
    ),
    Capability(
        "idempotent",
        "test_codecs.py::test_produces_idempotently",
        "the stored batches carry one producer id",
    ),
    Capability(
        "consumes",
        "test_codecs.py::test_consumes",
        "reads what all the others wrote in all codecs, each record once and in order",
    ),
    Capability(
        "groups",
        "test_groups.py::test_group_members_share_take_over_and_go_on",
        "two members share, one leaves and the other takes over, a later one goes on from there",
    ),
    Capability(
        "seeks by time",
        "test_seek.py::test_seeks_by_time",
        "finds the first record from a time on and reads it",
    ),
    Capability(
        "leader kill",
        "test_leader_kill.py::test_survives_a_leaders_death",
        "kill -9 of a leader under load: nothing lost; with idempotence nothing twice, order kept",
    ),
)

VERSIONS = {
    "kcat": "Debian's kcat, librdkafka 2.0",
    "confluent-kafka": "librdkafka, PyPI",
    "kafka-python": "PyPI",
    "aiokafka": "PyPI",
    "java": "Kafka 4.1's own tools: VerifiableProducer and others",
    "franz-go": "Go module",
    "sarama": "Go module",
    "kafka-go": "Go module",
}


def page() -> str:
    titles = [capability.title for capability in CAPABILITIES]
    lines = [
        "# Clients",
        "",
        "Real clients, unmodified, against real brokers. Made by",
        "`python -m tests.clients.capabilities`; each cell is a test in `tests/clients`.",
        "",
        f"| client | {' | '.join(titles)} |",
        f"|---|{'---|' * len(titles)}",
    ]
    for client in CLIENTS:
        cells = [capability.cell(client) for capability in CAPABILITIES]
        lines.append(f"| {client} ({VERSIONS[client]}) | {' | '.join(cells)} |")
    lines += ["", "| what | test | means |", "|---|---|---|"]
    for capability in CAPABILITIES:
        lines.append(f"| {capability.title} | `{capability.test}` | {capability.means} |")
    lines += ["", *OTHERS]
    return "\n".join(lines) + "\n"


OTHERS = (
    "Kafka's tools of administrators (`test_java_tools.py`): kafka-broker-api-versions,",
    "kafka-get-offsets, kafka-consumer-groups, kafka-log-dirs, kafka-reassign-partitions,",
    "kafka-leader-election, kafka-delete-records; kafka-topics and kafka-configs in test_admin.py.",
    "",
    "Spark's structured streaming reads, writes and goes on from its checkpoint after a restart",
    "(`test_spark.py`, in `make e2e-long`).",
    "",
    "`hack/dump-log-segments` has Kafka's DumpLogSegments and the classes of its brokers read",
    "segments, indexes, snapshots and checkpoints; a test does so after the leader kill.",
    "",
    "`tests.clients.kill_rounds` (in `make e2e-long`): all clients at once, with groups that read,",
    "while a broker is killed every 10 s for 5 min: nothing lost, nothing twice, groups go on.",
)


def missing_tests() -> list[str]:
    """Tests that the table names and that are not there."""
    found = set()
    for path in HERE.glob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                found.add(f"{path.name}::{node.name}")
    return sorted({capability.test for capability in CAPABILITIES} - found)


if __name__ == "__main__":
    PAGE.write_text(page())
