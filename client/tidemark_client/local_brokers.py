"""Find Tidemark's processes on this machine, for commands whose local cluster did not answer.

They tell where a cluster is, whether it is only starting, and whose `tidemark dev` was killed.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

LOCAL_CONTROLLER_URL = "http://127.0.0.1:17070"


PROCESSES = Path("/proc")
DEFAULT_CONTROLLER_PORT = 17070
BROKER_MODULE = "tidemark_broker.main"


@dataclass(frozen=True, slots=True)
class LocalBroker:
    pid: int
    controller: str  # host:port
    data_dir: str  # that of its `tidemark dev`


def local_brokers(processes: Path = PROCESSES) -> tuple[LocalBroker, ...]:
    found = []
    for pid, words in _commands(processes):
        options = dict(pairwise(words))
        if BROKER_MODULE in words:
            below = options.get("--data-dir", "").rpartition("/brokers/")[0]
            found.append(LocalBroker(pid, options.get("--controllers", ""), below))
    return tuple(found)


def runs_dev(controller_port: int, processes: Path = PROCESSES) -> bool:
    """Return whether a `tidemark dev` with that port runs; it answers a moment after it started."""
    for _, words in _commands(processes):
        options = dict(pairwise(words))
        port = options.get("--controller-port", str(DEFAULT_CONTROLLER_PORT))
        is_ours = any(word.endswith(("/tidemark", "tidemark_cli.main")) for word in words[:4])
        if is_ours and "dev" in words and port == str(controller_port):
            return True
    return False


def _commands(processes: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield process id and arguments of all processes that can be read."""
    try:
        entries = sorted(processes.iterdir())
    except OSError:  # no Linux: nothing is known
        return
    for entry in entries:
        if not entry.name.isdecimal():
            continue
        try:
            yield int(entry.name), os.fsdecode((entry / "cmdline").read_bytes()).split("\0")
        except OSError:  # it has ended
            continue


def clusters(brokers: tuple[LocalBroker, ...]) -> dict[str, LocalBroker]:
    """Return one broker of each controller's address."""
    return {each.controller: each for each in reversed(brokers)}
