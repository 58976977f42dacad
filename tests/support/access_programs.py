"""The real clients asked which accesses they get: one process of a client for all cells."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from tests.support.client_tools import ROOT, tool

# By language: Java, Python on librdkafka, Go, JavaScript, C.
ACCESS_CLIENTS = ("java", "confluent-kafka", "franz-go", "kafkajs", "kcat")
# What a client cannot try, with the reason: verbs and mechanisms.
UNABLE = {
    "kcat": {
        "create": "has no admin requests",
        "alter": "has no admin requests",
        "delete": "has no admin requests",
        "OAUTHBEARER": "Debian's librdkafka is built without curl, so it has no source of tokens",
        "SCRAM-SHA-512": "librdkafka 2.0 repeats its nonce in SCRAM (CVE-2024-56128)",
    },
    "kafkajs": {"consume": "reads in groups only"},
}
IN_PYTHON = {
    "java": "java_program",
    "confluent-kafka": "confluent_program",
    "kcat": "kcat_program",
}
ACCESS_MS = 20_000
NOT_LISTED, NO_ANSWER = "NOT_LISTED", "NO_ANSWER"
LIMIT_SECONDS = 180.0
BUILD_SECONDS = 3600.0  # of Go, where nothing is cached


@dataclass(frozen=True)
class Cell:
    """One access: who tries what, and with which credentials."""

    identity: str
    verb: str  # produce, consume, group, list, describe, create, alter, delete
    topic: str
    group: str = ""
    mechanism: str = ""  # OAUTHBEARER, SCRAM-SHA-512 or PLAIN; "" for TLS without SASL
    token: str = ""
    user: str = ""
    password: str = ""
    limit_ms: int = ACCESS_MS

    @property
    def limit_s(self) -> float:
        return self.limit_ms / 1000


@dataclass(frozen=True)
class Access:
    """`error` is "" where the access was allowed."""

    error: str
    message: str


@cache
def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "TIDEMARK_KAFKA_JARS": tool("kafka/jars"),
        "TIDEMARK_JAVA_CLIENTS": tool("client-tools", "java"),
        "TIDEMARK_NODE_CLIENTS": tool("client-tools", "node"),
    }


def _command(client: str) -> list[str]:
    if client == "kafkajs":
        return ["node", str(ROOT / "tests/compatibility/node/access.mjs")]
    if client in IN_PYTHON:
        module = f"tests.compatibility.programs.{IN_PYTHON[client]}"
        return [sys.executable, "-m", module, "access"]
    return [tool("client-tools", "go", seconds=BUILD_SECONDS), client, "access"]


def accesses(
    client: str, bootstrap: str, authorities: Path, cells: Sequence[Cell]
) -> dict[tuple[str, str], Access]:
    """Return what each identity got for each verb."""
    if client == "kcat":
        tool("client-tools", "kcat")
    done = subprocess.run(
        [*_command(client), "--bootstrap", bootstrap, "--ca", str(authorities)],
        input=json.dumps([asdict(cell) for cell in cells]),
        env=_environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            event = json.loads(line)
            access = Access(event["error"], event.get("message", ""))
            found[event["identity"], event["verb"]] = access
    return found
