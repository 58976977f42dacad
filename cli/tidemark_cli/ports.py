"""Neighbouring ports for the processes of a cluster on this machine, kept from other clusters."""

import contextlib
import socket

from tidemark_cli.failures import CommandFailed

HOST = "127.0.0.1"
FIRST_PORT, LAST_PORT = 21000, 29000  # below what Linux gives to outgoing connections


class PortRange:
    """`first` and those after it, until `close`.

    They are bound and not listened at: whoever looks for ports in the same way finds them taken,
    while a server that allows reuse of its address (SO_REUSEADDR, as servers do) listens at them.
    """

    def __init__(self, count: int) -> None:
        """Raises CommandFailed."""
        for first in range(FIRST_PORT, LAST_PORT - count, count):
            with contextlib.ExitStack() as sockets:
                try:
                    for port in range(first, first + count):
                        _take(sockets.enter_context(socket.socket()), port)
                except OSError:
                    continue
                self.first = first
                self._taken = sockets.pop_all()
                return
        raise CommandFailed(
            expected=f"{count} free neighbouring ports from {FIRST_PORT} to {LAST_PORT}",
            found="none",
            to_do="stop what listens there",
        )

    def __enter__(self) -> "PortRange":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._taken.close()


def _take(held: socket.socket, port: int) -> None:
    held.bind((HOST, port))  # fails where anybody is bound, also one of us who does not listen
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
