"""Run a Prometheus for the demo that scrapes twice a second, and audit what it stored.

Without Prometheus's binary, or without the audit's packages, the demo ends without an audit and
says so: its own verdict does not need one.
"""

import asyncio
import importlib.util
import json
import shutil
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tidemark_chaos.environments import child_processes

BINARIES = Path("hack/prometheus/binaries")
FETCH_SECONDS = 120.0
READY_SECONDS = 30.0
AUDIT_SECONDS = 240.0
SCRAPED_SECONDS = 30.0
LOOK_SECONDS = 0.1
# When the target that answered longest ago was scraped; nothing until all have been scraped once.
LAST_SCRAPES = "min(timestamp(up) * up) and count(up) >= {targets}"
# A killed process is back in the in-sync sets after some 0.7 s: that is to be seen.
CONFIGURATION = """\
global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}
scrape_configs:
  - job_name: tidemark
    static_configs: [{{targets: {targets}, labels: {{cluster: demo}}}}]
"""


@dataclass(frozen=True, slots=True)
class AuditResponse:
    """Hold the audit's result in lines that the demo prints."""

    verdict: str
    sentence: str
    incidents: tuple[str, ...]
    page: str  # path of the report; empty if there is none


class _Finding(msgspec.Struct):
    id: str
    incident: str
    rule: str
    sentence: str
    planned: bool


class _Result(msgspec.Struct):
    verdict: str
    sentence: str
    findings: list[_Finding]


class Scraper:
    def __init__(self, directory: Path, *, log: Path) -> None:
        self._directory = directory
        self._log = log
        self._server: asyncio.subprocess.Process | None = None
        self._url = ""
        self._targets = 0
        self._start_seconds = 0.0
        self.missing = ""  # why there is no audit

    async def start(self, port: int, targets: Sequence[str]) -> None:
        """Start Prometheus; return when it scrapes, or with `missing` saying why it does not."""
        if any(importlib.util.find_spec(name) is None for name in ("numpy", "pyarrow")):
            self.missing = "no packages of the audit: make setup-audit, or 'tidemark[audit]'"
            return
        binary = await self._binary()
        if binary is None:
            self.missing = (
                f"no Prometheus on PATH, and {BINARIES} could not fetch one"
                if shutil.which(str(BINARIES)) is not None
                else "no Prometheus on PATH; in a checkout of Tidemark the demo fetches one"
            )
            return
        self._targets = len(targets)
        configuration = self._directory / "prometheus.yml"
        configuration.write_text(CONFIGURATION.format(targets=json.dumps(list(targets))))
        self._url = f"http://127.0.0.1:{port}"
        self._server = await child_processes.start(
            [
                str(binary),
                f"--config.file={configuration}",
                f"--storage.tsdb.path={self._directory / 'prometheus'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            log=self._log,
        )
        if not await self._is_ready():
            self.missing = f"Prometheus did not start: see {self._log}"

    async def begin(self) -> None:
        """Begin the audited time once every target was scraped again.

        Before that the cluster was only starting. `missing` says why, if that does not come.
        """
        if not self.missing:
            self._start_seconds = await self._scraped_after(time.time()) or 0.0

    async def _binary(self) -> Path | None:
        if (installed := shutil.which("prometheus")) is not None:
            return Path(installed)
        if shutil.which(str(BINARIES)) is None:
            return None
        try:
            found = await child_processes.run([str(BINARIES)], within_seconds=FETCH_SECONDS)
        except TimeoutError:
            return None
        return Path(found.stdout.decode().strip()) / "prometheus" if not found.exit_code else None

    async def _is_ready(self) -> bool:
        return await self._until(lambda: self._get("/-/ready") is not None, READY_SECONDS)

    async def _scraped_after(self, seconds: float) -> float | None:
        """Return when every target had been scraped after a moment.

        None, with `missing` set, if that does not come.
        """
        query = "/api/v1/query?" + urllib.parse.urlencode(
            {"query": LAST_SCRAPES.format(targets=self._targets)}
        )

        def is_scraped() -> bool:
            found = self._get(query)
            result = [] if found is None else json.loads(found)["data"]["result"]
            return bool(result) and float(result[0]["value"][1]) > seconds

        if await self._until(is_scraped, SCRAPED_SECONDS):
            return time.time()
        self.missing = f"Prometheus did not scrape all for {SCRAPED_SECONDS:g} s: see {self._log}"
        return None

    def _get(self, path: str) -> bytes | None:
        """Return a response's body; None without a good response."""
        try:
            with urllib.request.urlopen(self._url + path, timeout=2) as response:
                return bytes(response.read())
        except OSError:
            return None

    async def _until(self, is_so: Callable[[], bool], within_seconds: float) -> bool:
        deadline = time.monotonic() + within_seconds
        while time.monotonic() < deadline:
            if await asyncio.to_thread(is_so):
                return True
            await asyncio.sleep(LOOK_SECONDS)
        return False

    async def audit(self, report: Path) -> AuditResponse | None:
        """Audit the time since `begin`; None with `missing` set."""
        if self.missing or self._server is None:
            return None
        end = await self._scraped_after(time.time())  # the last events are seen
        if end is None:
            return None
        engine = "local" if shutil.which("java") is None else "spark"
        try:
            ended = await child_processes.run(
                [
                    *(sys.executable, "-m", "tidemark_cli.main", "audit", self._url, "-o", "json"),
                    *("--start", f"{self._start_seconds:.3f}", "--end", f"{end:.3f}"),
                    *("--engine", engine, "--report", str(report)),
                ],
                within_seconds=AUDIT_SECONDS,
            )
            result = msgspec.json.decode(ended.stdout, type=_Result)
        except TimeoutError:
            self.missing = f"the audit took longer than {AUDIT_SECONDS:g} s"
            return None
        except msgspec.DecodeError:
            said = (ended.stdout[-300:] + ended.stderr[-300:]).decode(errors="replace")
            self.missing = f"the audit gave no verdict: {said}"
            return None
        page = report / "report.html"
        return AuditResponse(
            result.verdict,
            result.sentence,
            tuple(
                found.sentence
                for found in result.findings
                if found.rule in ("R1", "R2", "R6") and found.incident in ("", found.id)
            ),
            str(page if page.is_file() else report),
        )

    async def stop(self) -> None:
        await child_processes.stop(self._server)
