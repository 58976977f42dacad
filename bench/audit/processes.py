"""A command and all processes that it starts: wall time, processor time, memory by what they are.

Looked at through /proc every 50 ms. Memory is what the machine has to have: anonymous pages (heap,
stacks, arrays) beside resident ones, which hold pages of mapped files too, samples among them.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

LOOK_SECONDS = 0.05
LIMIT_SECONDS = 3600.0
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class CommandFailed(Exception):
    """A command ended with another code than it should; holds the end of what it said."""


@dataclass(slots=True)
class Peak:
    """Highest sums over the processes of one kind, in MB."""

    resident_mb: float = 0.0
    anonymous_mb: float = 0.0


@dataclass(slots=True)
class Measured:
    wall_seconds: float = 0.0
    # By kind: `jvm`, `main` (the first process), `workers` (all others).
    cpu: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, Peak] = field(default_factory=dict)
    output: bytes = b""

    @property
    def cpu_seconds(self) -> float:
        return sum(self.cpu.values())

    def anonymous_mb(self, *kinds: str) -> float:
        return sum(self.peaks[kind].anonymous_mb for kind in kinds if kind in self.peaks)


def measured(command: Sequence[str | Path], *, codes: Sequence[int] = (0,)) -> Measured:
    """Runs it to its end. Raises CommandFailed."""
    found = Measured()
    began = time.monotonic()
    # As installed: a developer's setting may keep Python from keeping what it compiled.
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, env=kept
    )
    watch = _Watch(process.pid, found)
    watch.start()
    try:
        found.output, errors = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        found.wall_seconds = time.monotonic() - began
        watch.end()
    if process.returncode not in codes:
        said = (errors or found.output)[-2000:].decode(errors="replace")
        raise CommandFailed(f"{command}: exit code {process.returncode}: {said}")
    return found


class _Watch(threading.Thread):
    """Of the session that a process leads: its children are in it, and theirs."""

    def __init__(self, session: int, into: Measured) -> None:
        super().__init__(name="watch", daemon=True)
        self._session = session
        self._into = into
        self._ended = threading.Event()
        self._cpu: dict[tuple[int, str], float] = {}

    def run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self._look()

    def end(self) -> None:
        self._ended.set()
        self.join()
        for (_, kind), seconds in self._cpu.items():
            self._into.cpu[kind] = self._into.cpu.get(kind, 0.0) + seconds

    def _look(self) -> None:
        sums: dict[str, Peak] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) != self._session:
                    continue
                pages = (entry / "statm").read_text().split()
                name = (entry / "comm").read_text().strip()
            except OSError:  # it has ended meanwhile
                continue
            pid = int(entry.name)
            kind = "jvm" if name == "java" else "main" if pid == self._session else "workers"
            self._cpu[pid, kind] = (int(fields[11]) + int(fields[12])) / TICKS
            peak = sums.setdefault(kind, Peak())
            peak.resident_mb += int(pages[1]) * PAGE_BYTES / 1e6
            peak.anonymous_mb += (int(pages[1]) - int(pages[2])) * PAGE_BYTES / 1e6
        for kind, peak in sums.items():
            highest = self._into.peaks.setdefault(kind, Peak())
            highest.resident_mb = max(highest.resident_mb, peak.resident_mb)
            highest.anonymous_mb = max(highest.anonymous_mb, peak.anonymous_mb)
