"""Whether the ports of local mode can be had, and who has them, before anything begins."""

import asyncio
import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from tidemark_operator.runtimes.free_ports import is_free, taken_sentence

READ_SECONDS = 0.1
PROCESSES = Path("/proc")
BROKER_MODULE = b"tidemark_broker.main"


async def until_free(
    host: str,
    ports: Sequence[int],
    *,
    seconds: float,
    ending: Callable[[], Sequence[int]] = tuple,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Wait for brokers of an earlier run that are ending. Raises OSError.

    `ending`: their process ids. Without any a taken port is refused at once."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + seconds
    told = False
    for port in ports:
        while not is_free(host, port):
            pids = ending()
            if not pids or loop.time() >= ends_s:
                raise OSError(taken_sentence(host, port, pids))
            if not told:
                told = True
                tell(
                    f"waiting up to {seconds:g} s for brokers of an earlier run to end (processes"
                    f" {', '.join(map(str, pids))})"
                )
            await asyncio.sleep(READ_SECONDS)


def earlier_brokers(data_dir: Path, *, processes: Path = PROCESSES) -> tuple[int, ...]:
    """Return ids of broker processes of this data directory whose `tidemark dev` is gone."""
    found = []
    below = os.fsencode(data_dir) + b"/"
    for entry in processes.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        is_ours = any(a == b"--data-dir" and b.startswith(below) for a, b in pairwise(words))
        if BROKER_MODULE in words and is_ours:
            found.append(int(entry.name))
    return tuple(sorted(found))
