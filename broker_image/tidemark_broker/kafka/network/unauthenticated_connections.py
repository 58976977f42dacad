"""Bound the connections whose clients have not authenticated yet, apart from all others.

A client that authenticates does so in milliseconds, so when too many connections are open without
it, the oldest of them is closed.
"""

from typing import Protocol

from tidemark_broker.kafka.network.limits import ListenerLimits


class UnauthenticatedConnection(Protocol):
    def reject(self, kind: str, reason: str) -> None: ...


class UnauthenticatedConnections:
    def __init__(self, limits: ListenerLimits) -> None:
        self._limit = limits.unauthenticated_connections
        self._open: dict[UnauthenticatedConnection, None] = {}  # by age

    def __len__(self) -> int:
        return len(self._open)

    def join(self, connection: UnauthenticatedConnection) -> None:
        if len(self._open) >= self._limit:
            oldest = next(iter(self._open))
            self.forget(oldest)
            reason = f"{self._limit} connections are open without authentication"
            oldest.reject("too many unauthenticated connections", reason)
        self._open[connection] = None

    def forget(self, connection: UnauthenticatedConnection) -> None:
        """Forget a connection that has authenticated, or is gone."""
        self._open.pop(connection, None)
