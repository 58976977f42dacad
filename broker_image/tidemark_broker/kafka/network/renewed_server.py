"""Accept TLS connections at a port, with a context that can be replaced by another.

Trust cannot be taken back from a context, so another server accepts at a duplicate of the same
socket, and no attempt to connect is lost.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable

from tidemark_broker.security.tls import HANDSHAKE_TIMEOUT_SECONDS, SHUTDOWN_TIMEOUT_SECONDS

BACKLOG = 512


class RenewedServer:
    def __init__(self, host: str, port: int, new_protocol: Callable[[], asyncio.Protocol]) -> None:
        """Listen on a port (0 asks for a free one). Raises OSError."""
        self._new_protocol = new_protocol
        self._server: asyncio.Server | None = None
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.setblocking(False)
            self._socket.bind((host, port))
            self._socket.listen(BACKLOG)
        except OSError:
            self._socket.close()
            raise

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    async def accept_with(self, context: ssl.SSLContext) -> None:
        """Accept connections with this context from now on. Raises OSError."""
        former = self._server
        self._server = await asyncio.get_running_loop().create_server(
            self._new_protocol,
            sock=self._socket.dup(),
            backlog=BACKLOG,
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_TIMEOUT_SECONDS,
            ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_SECONDS,
        )
        if former is not None:
            former.close()

    def close(self) -> asyncio.Server:
        """Accept no more, and return the server to wait for."""
        assert self._server is not None, "accept first"
        self._socket.close()
        self._server.close()
        return self._server
