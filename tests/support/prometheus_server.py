"""A real Prometheus of a test's own: a short interval, one job per kind of target, an end."""

import contextlib
import json
import os
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark_chaos.environments.processes import PortRange

from tests.support.promtool import prometheus_binaries
from tests.support.waiting import wait_for


@dataclass
class PrometheusServer:
    """Scrapes `jobs` (name to host:port list) until `running_prometheus` ends."""

    directory: Path
    jobs: Mapping[str, Sequence[str]]
    interval_seconds: int = 1
    retention: str = "15d"
    process: subprocess.Popen[bytes] | None = None
    ports: PortRange = field(default_factory=lambda: PortRange(1))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.ports.first}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def data_directory(self) -> Path:
        return self.directory / "data"

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        configuration = {
            "global": {
                "scrape_interval": f"{self.interval_seconds}s",
                "scrape_timeout": f"{self.interval_seconds}s",
            },
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": list(targets)}]}
                for job, targets in self.jobs.items()
            ],
        }
        file = self.directory / "prometheus.yml"
        file.write_text(json.dumps(configuration))  # JSON is YAML
        with (self.directory / "prometheus.log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    prometheus_binaries() / "prometheus",
                    f"--config.file={file}",
                    f"--storage.tsdb.path={self.data_directory}",
                    f"--storage.tsdb.retention.time={self.retention}",
                    f"--web.listen-address={self.address}",
                    "--web.enable-admin-api",  # for snapshots
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | {"GOMAXPROCS": "1"},
            )
        wait_for("Prometheus to be ready", self._is_ready, seconds=60)

    def _is_ready(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as response:
            return bool(response.status == 200)

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=30)
            self.process = None

    def ask(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer of its HTTP API."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as response:
            return json.loads(response.read())["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """An instant vector: labels and value."""
        found = self.ask("query", query=expression)["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def wait_until_scraped(self) -> None:
        targets = sum(len(each) for each in self.jobs.values())
        wait_for(
            f"{targets} targets to be up",
            lambda: sum(value for _, value in self.query("up")) == targets,
            seconds=30,
        )


@contextlib.contextmanager
def running_prometheus(
    directory: Path, jobs: Mapping[str, Sequence[str]], **settings: Any
) -> Iterator[PrometheusServer]:
    server = PrometheusServer(directory, jobs, **settings)
    try:
        server.start()
        yield server
    except BaseException as error:
        log = directory / "prometheus.log"
        error.add_note(log.read_text()[-3000:] if log.is_file() else "no log of Prometheus")
        raise
    finally:
        server.stop()
        server.ports.close()
