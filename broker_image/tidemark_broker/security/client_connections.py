"""Count the connections of clients by encryption and authentication.

A connection counts from its first request that is neither of authentication nor of health or
metrics. So what is left to change before a port is closed shows: connections without TLS, and
without a name. One event loop owns it; no locks.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

OPEN = "tidemark_client_connections"
TOTAL = "tidemark_client_connections_total"


class ConnectionKind(NamedTuple):
    listener: str
    has_tls: bool
    is_authenticated: bool

    @property
    def labels(self) -> str:
        encryption = "tls" if self.has_tls else "none"
        authentication = "kubernetes" if self.is_authenticated else "none"
        return (
            f'listener="{self.listener}",encryption="{encryption}",'
            f'authentication="{authentication}"'
        )


class ClientConnections:
    def __init__(self) -> None:
        self.open: Counter[ConnectionKind] = Counter()
        self.total: Counter[ConnectionKind] = Counter()

    def render(self) -> Iterator[str]:
        kinds = sorted(self.total)
        for family, kind, text, counts in (
            (OPEN, "gauge", "Open connections of clients.", self.open),
            (TOTAL, "counter", "Connections that clients used.", self.total),
        ):
            lines = [f"# HELP {family} {text}\n# TYPE {family} {kind}\n"]
            lines += [f"{family}{{{each.labels}}} {counts[each]}\n" for each in kinds]
            yield "".join(lines)


class CountedConnection:
    """One connection; `used` counts it, again when its client has authenticated since."""

    __slots__ = ("_connections", "_kind", "has_tls", "listener")

    def __init__(self, listener: str, *, has_tls: bool) -> None:
        self.listener = listener
        self.has_tls = has_tls
        self._connections: ClientConnections | None = None
        self._kind: ConnectionKind | None = None

    @property
    def is_counted(self) -> bool:
        return self._kind is not None

    def used(self, connections: ClientConnections, *, is_authenticated: bool) -> None:
        if self._kind is not None and self._kind.is_authenticated is is_authenticated:
            return
        self.end()
        self._connections = connections
        kind = self._kind = ConnectionKind(self.listener, self.has_tls, is_authenticated)
        connections.open[kind] += 1
        connections.total[kind] += 1

    def end(self) -> None:
        """Count the connection no longer as open."""
        if self._connections is not None and self._kind is not None:
            self._connections.open[self._kind] -= 1
            self._kind = None
