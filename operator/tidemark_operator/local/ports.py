"""Whether the ports of local mode can be had, before anything begins."""

import asyncio
import socket
from collections.abc import Sequence

LOOK_SECONDS = 0.1


async def until_free(host: str, ports: Sequence[int], *, seconds: float) -> None:
    """The brokers of a run that was killed need a moment to end. Raises OSError."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + seconds
    for port in ports:
        while not _is_free(host, port):
            if loop.time() >= ends_s:
                raise OSError(
                    f"expected port {port} of {host} to be free, found a process that listens"
                    f" there (not gone within {seconds:g} s); stop it, or choose other ports with"
                    " --http-port, --kafka-port and --controller-port"
                )
            await asyncio.sleep(LOOK_SECONDS)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: connections of a former server that still end are nobody who listens.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True
