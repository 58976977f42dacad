"""Check whether a server can listen at a port, and name the port in the error."""

import socket
from collections.abc import Sequence


def taken_sentence(host: str, port: int, pids: Sequence[int] = ()) -> str:
    owner = f"process {pids[0]}" if pids else "another process"
    return (
        f"port {port} of {host} is in use by {owner}: stop it, or choose other ports"
        " with --http-port, --kafka-port and --controller-port"
    )


def is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: connections of a former server that still end are nobody who listens.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True
