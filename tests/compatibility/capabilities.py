"""What a client can do here, as a table: docs/user/clients.md, made from the tests themselves.

python -m tests.compatibility.capabilities

A cell says yes where the test of that name is parametrised over the client, so that `make test`
runs it; a test of the tidy folder keeps the page as this makes it. What a client lacks is its own
lack, with the reason, and a test that shows it.
"""

import importlib
from dataclasses import dataclass
from typing import Any

from tests.compatibility.client_programs import CLIENTS, CODECS, UNSUPPORTED
from tests.support.client_tools import ROOT

PAGE = ROOT / "docs" / "user" / "clients.md"


@dataclass(frozen=True)
class Capability:
    """`test` as file::function."""

    title: str
    test: str
    means: str

    def tested_clients(self) -> tuple[str, ...]:
        for mark in getattr(the_test(self.test), "pytestmark", ()):
            if mark.name == "parametrize" and mark.args[0] == "client":
                return tuple(mark.args[1])
        return ()

    def cell(self, client: str) -> str:
        """Of one that is neither tested nor known to lack it there is none: KeyError."""
        if client in self.tested_clients():
            return "yes"
        return f"no: {UNSUPPORTED[self.title][client]}"


def the_test(name: str) -> Any:
    """Raises ImportError, AttributeError."""
    file, _, function = name.partition("::")
    return getattr(
        importlib.import_module(f"tests.compatibility.{file.removesuffix('.py')}"), function
    )


LACKING = {
    ("administrates", "kcat"): "test_unsupported_features.py::test_kcat_has_no_admin_requests",
    (
        "idempotent",
        "kafka-go",
    ): "test_unsupported_features.py::test_kafka_go_has_no_idempotent_producer",
}

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
        "two members share, one leaves and the other takes over, a later one continues from there",
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
    "java": "Kafka 4.4's own tools: VerifiableProducer and others",
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
        "`python -m tests.compatibility.capabilities` from the tests in `tests/compatibility`: "
        "yes is a test",
        "that runs with that client, no one in `test_unsupported_features.py` that shows what it "
        "lacks.",
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
    "Authentication has a page of its own, with a recipe for each client: [authentication.md]"
    "(authentication.md).",
    "",
    "Kafka's tools of administrators (`test_java_tools.py`): kafka-broker-api-versions,",
    "kafka-get-offsets, kafka-consumer-groups, kafka-log-dirs, kafka-reassign-partitions,",
    "kafka-leader-election, kafka-delete-records, kafka-metadata-quorum, kafka-transactions",
    "(describe-producers); kafka-topics and kafka-configs in test_admin.py.",
    "",
    "Spark's structured streaming reads, writes and continues from its checkpoint after a restart",
    "(`test_spark.py`, in `make e2e-long`).",
    "",
    "`hack/dump-log-segments` has Kafka's DumpLogSegments and the classes of its brokers read",
    "segments, indexes, snapshots and checkpoints; a test does so after the leader kill.",
    "",
    "`tests.compatibility.kill_rounds` (in `make e2e-long`): all clients, with groups that read,",
    "while a broker is killed every 10 s for 5 min: nothing lost, nothing twice, groups continue.",
)


if __name__ == "__main__":
    PAGE.write_text(page())
