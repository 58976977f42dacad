"""Start child processes so that none outlives this one, and end them within a limit."""

import asyncio
import ctypes
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1
STOP_SECONDS = 20.0
MAX_STDERR_BYTES = 2000

_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Terminated:
    exit_code: int
    stdout: bytes
    stderr: bytes


async def start(command: Sequence[str], *, log: Path) -> asyncio.subprocess.Process:
    """Start a process in a session of its own.

    Ctrl-C then reaches this process alone, which ends its children in order.
    """
    with log.open("ab") as file:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )


async def run(
    command: Sequence[str],
    *,
    within_seconds: float,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
) -> Terminated:
    """Run a command to its end.

    Raises TimeoutError after the child is killed.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(env) if env is not None else None,
    )
    try:
        async with asyncio.timeout(within_seconds):
            stdout, stderr = await process.communicate(stdin)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Terminated(process.returncode or 0, stdout, stderr)


async def stop(process: asyncio.subprocess.Process | None) -> None:
    """SIGTERM, and SIGKILL after a while."""
    if process is None or process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):  # it ended just now
            process.kill()
        await process.wait()


def descendants(pid: int) -> list[int]:
    """Return all living processes below this one (Linux /proc)."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := parent_of(int(entry.name))) is not None:
            parents.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        below = parents.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def command_line(pid: int) -> list[str]:
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(part) for part in data.split(b"\0") if part]


def parent_of(pid: int) -> int | None:
    """Return the parent of a living process; None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[1])  # the name before it may hold anything
