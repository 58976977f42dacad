"""The real clients as processes: each is asked the same and answers in the same words.

`programs/command_line.py` has the words. What a client cannot do is said here once, with the
reason, and stands in the table of docs/user/clients.md.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.client_tools import ROOT, tool
from tests.support.kafka_cluster import bootstrap
from tests.support.local_cluster import LocalCluster
from tests.support.waiting import wait_for

CLIENTS = (
    "kcat",
    "confluent-kafka",
    "kafka-python",
    "aiokafka",
    "java",
    "franz-go",
    "sarama",
    "kafka-go",
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
IN_PYTHON = {
    "kcat": "kcat_program",
    "confluent-kafka": "confluent_program",
    "kafka-python": "kafka_python_program",
    "aiokafka": "aiokafka_program",
    "java": "java_program",
}
# What a client cannot do anywhere, by capability; docs/user/clients.md says it.
UNSUPPORTED = {
    "administrates": {"kcat": "has no admin requests"},
    "idempotent": {"kafka-go": "has no idempotent producer"},
}
BUILD_SECONDS = 3600.0  # of Go, where nothing is cached
RUN_SECONDS = 100.0  # several Java machines one after another, where others work too

Event = dict[str, Any]


@dataclass
class ClientProgram:
    """A client at work; its events as they come. Use it as a context: it never outlives that."""

    process: subprocess.Popen[str]
    errors: Path
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> "ClientProgram":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()

    def named(self, name: str) -> list[Event]:
        return [event for event in list(self.events) if event["name"] == name]

    def values(self, name: str) -> list[str]:
        return [event["value"] for event in self.named(name)]

    def end(self) -> None:
        """SIGTERM, as one ends a program that goes on for ever."""
        self.process.terminate()

    def wait(self, seconds: float = RUN_SECONDS) -> int:
        """Its exit code, when all that it said is in `events`."""
        code = self.process.wait(seconds)
        self._reader.join()
        return code

    def wait_for(self, what: str, look: Callable[[], object], seconds: float = RUN_SECONDS) -> None:
        def is_so() -> bool:
            if look():
                return True
            assert self.process.poll() is None, f"ended before {what}"
            return False

        try:
            wait_for(what, is_so, seconds=seconds)
        except AssertionError as error:
            error.add_note(self.errors_text())
            raise

    def errors_text(self) -> str:
        return self.errors.read_text(errors="replace")[-3000:]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))


@dataclass(frozen=True)
class ClientPrograms:
    """Where the tools are, and where programs may write what goes wrong."""

    go: str
    kafka_jars: str
    directory: Path

    def start(
        self, client: str, work: str, cluster: LocalCluster, topic: str, **options: object
    ) -> ClientProgram:
        """Options as `programs/command_line.py` has them; True is a flag."""
        arguments = [work, "--bootstrap", ",".join(bootstrap(cluster)), "--topic", topic]
        for name, value in options.items():
            arguments += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        errors = self.directory / f"{client}-{work}-{len(list(self.directory.iterdir()))}.txt"
        with errors.open("w") as error_file:
            process = subprocess.Popen(
                [*self._command(client), *arguments],
                env={**os.environ, "TIDEMARK_KAFKA_JARS": self.kafka_jars},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=error_file,
                text=True,
                start_new_session=True,
            )
        return ClientProgram(process, errors)

    def run(
        self, client: str, work: str, cluster: LocalCluster, topic: str, **options: object
    ) -> ClientProgram:
        """To its end, which must be a good one."""
        with self.start(client, work, cluster, topic, **options) as program:
            code = program.wait()
            assert code == 0, f"{client} {work}: exit code {code}: {program.errors_text()}"
            return program

    def _command(self, client: str) -> list[str]:
        if client in IN_PYTHON:
            return [sys.executable, "-m", f"tests.compatibility.programs.{IN_PYTHON[client]}"]
        return [self.go, client]


def client_programs(directory: Path) -> ClientPrograms:
    tool("client-tools", "kcat")
    return ClientPrograms(
        tool("client-tools", "go", seconds=BUILD_SECONDS), tool("kafka/jars"), directory
    )


def able(capability: str) -> list[str]:
    return [client for client in CLIENTS if client not in UNSUPPORTED.get(capability, {})]
