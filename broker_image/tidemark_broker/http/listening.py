"""The listening socket of a broker's HTTP, made before anything that answers on it is loaded."""

import socket

from tidemark_broker.http.limits import ServerLimits


def listen(host: str, port: int, limits: ServerLimits | None = None) -> socket.socket:
    """From here on the kernel accepts connections and keeps them until `server.serve` takes them.
    Raises OSError when the address cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen((limits or ServerLimits()).backlog)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener
