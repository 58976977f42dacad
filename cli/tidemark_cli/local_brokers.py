"""Brokers of local mode among the processes of this machine: where a cluster is that did not answer
at the default address, or whose `tidemark dev` was killed.
"""

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

BROKER_MODULE = "tidemark_broker.main"


@dataclass(frozen=True, slots=True)
class LocalBroker:
    pid: int
    controller: str  # host:port
    data_dir: str  # that of its `tidemark dev`


def local_brokers(processes: Path = Path("/proc")) -> tuple[LocalBroker, ...]:
    """Of this user's and other users' processes, as far as they can be read."""
    found = []
    try:
        entries = sorted(processes.iterdir())
    except OSError:  # no Linux: nothing is known
        return ()
    for entry in entries:
        try:
            words = os.fsdecode((entry / "cmdline").read_bytes()).split("\0")
        except OSError:
            continue
        options = dict(pairwise(words))
        if BROKER_MODULE in words and entry.name.isdecimal():
            below = options.get("--data-dir", "").rpartition("/brokers/")[0]
            found.append(LocalBroker(int(entry.name), options.get("--controllers", ""), below))
    return tuple(found)


def whereabouts(brokers: tuple[LocalBroker, ...]) -> str:
    """A sentence for whoever found no controller; "" without brokers."""
    if not brokers:
        return ""
    pids = ", ".join(str(each.pid) for each in brokers[:10])
    controllers = sorted({each.controller for each in brokers})
    return (
        f"brokers of this machine (processes {pids}, data in {brokers[0].data_dir}) belong to the"
        f" controller at {', '.join(controllers)}"
    )
