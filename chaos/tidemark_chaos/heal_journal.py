"""Write down what has to be undone before it is done, so that another process can undo it.

A runner that was killed leaves its journal. A process is named by its id and the time of its start:
an id that another process got since is never signalled. A volume is named by its path.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from tidemark_chaos.environments import volumes

JOURNAL = "heal-journal.json"
STOP_SECONDS = 40.0  # brokers without their operator end within 15 s
POLL_SECONDS = 0.05


OfProcess = Literal["resume", "kill", "stop"]  # SIGCONT; SIGKILL; SIGTERM, then SIGKILL
OfPath = Literal["thaw", "delete", "unmount"]
# What is paused or waits for a disk cannot stop; a volume in use cannot be unmounted.
ORDER: tuple[OfProcess | OfPath, ...] = ("resume", "thaw", "delete", "kill", "stop", "unmount")


class Undo(msgspec.Struct, frozen=True, omit_defaults=True):
    action: OfProcess | OfPath
    pid: int
    started: int  # in clock ticks since the boot of the machine
    what: str  # of which broker or part it is
    path: str = ""  # instead of a process


class _Stored(msgspec.Struct):
    runner: int
    runner_started: int
    undo: list[Undo]


class RunnerAlive(Exception):
    """An error: the runner whose journal it is still runs; the text names its process."""


class HealJournal:
    """The journal of one runner; each change is on disk before the method returns."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / JOURNAL
        self._undo: list[Undo] = []

    def add(self, action: OfProcess, pid: int, what: str) -> None:
        started = start_time(pid)
        if started is not None:
            self._undo.append(Undo(action, pid, started, what))
            self._write()

    def remove(self, action: OfProcess, pid: int) -> None:
        self._undo = [each for each in self._undo if (each.action, each.pid) != (action, pid)]
        self._write()

    def add_path(self, action: OfPath, path: Path, what: str) -> None:
        self._undo.append(Undo(action, 0, 0, what, str(path)))
        self._write()

    def remove_path(self, action: OfPath, path: Path) -> None:
        self._undo = [
            each for each in self._undo if (each.action, each.path) != (action, str(path))
        ]
        self._write()

    def close(self) -> None:
        """Delete the journal: nothing is left to undo."""
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        stored = _Stored(os.getpid(), start_time(os.getpid()) or 0, self._undo)
        new = self._path.with_suffix(".new")
        with new.open("wb") as file:
            file.write(msgspec.json.encode(stored))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)


def heal(directory: Path, tell: Callable[[str], None]) -> int:
    """Undo what a killed runner left, delete its journal and return the number of steps.

    Raises RunnerAlive.
    """
    path = directory / JOURNAL
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=_Stored)
    except FileNotFoundError:
        return 0
    if start_time(stored.runner) == stored.runner_started:
        raise RunnerAlive(f"process {stored.runner} runs an experiment in {directory}")
    living = [each for each in stored.undo if each.path or start_time(each.pid) == each.started]
    for each in sorted(living, key=lambda each: ORDER.index(each.action)):
        tell(f"{each.action} {each.what} ({each.path or f'process {each.pid}'})")
        _undo(each)
    path.unlink(missing_ok=True)
    return len(living)


def _undo(step: Undo) -> None:
    path = Path(step.path)
    with suppress(ProcessLookupError):
        match step.action:
            case "resume":
                os.kill(step.pid, signal.SIGCONT)
            case "kill":
                os.kill(step.pid, signal.SIGKILL)
            case "stop":
                _stop(step)
            case "thaw":
                volumes.thaw(path)
            case "delete":
                path.unlink(missing_ok=True)
            case "unmount":
                volumes.unmount(path)


def _stop(undo: Undo) -> None:
    os.kill(undo.pid, signal.SIGTERM)
    ends = time.monotonic() + STOP_SECONDS
    while start_time(undo.pid) == undo.started and time.monotonic() < ends:
        time.sleep(POLL_SECONDS)
    if start_time(undo.pid) == undo.started:
        os.kill(undo.pid, signal.SIGKILL)


def start_time(pid: int) -> int | None:
    """Return when a living process started; None if it has ended (Linux /proc)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return None if fields[0] in "ZX" else int(fields[19])
