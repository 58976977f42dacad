"""Bound the connections whose clients have not authenticated yet, apart from all others."""

from tidemark_protocol.pending_connections import PendingConnection, PendingConnections

from tidemark_broker.kafka.network.limits import ListenerLimits


class UnauthenticatedConnections:
    """Those of all listeners; each listener has its own bound."""

    def __init__(self, limits: ListenerLimits) -> None:
        self._limits = limits
        self._by_listener: dict[str, PendingConnections] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_listener.values()))

    def of(self, listener: str) -> PendingConnections:
        """Return those of a listener."""
        found = self._by_listener.get(listener)
        if found is None:
            found = self._by_listener[listener] = new_pending(self._limits)
        return found

    def join(self, connection: PendingConnection, listener: str, address: str) -> None:
        self.of(listener).join(connection, address)

    def forget(self, connection: PendingConnection, listener: str) -> None:
        """Forget a connection that has authenticated, or is gone."""
        self.of(listener).forget(connection)


def new_pending(limits: ListenerLimits) -> PendingConnections:
    return PendingConnections(limits.unauthenticated_connections, limits.unauthenticated_of_address)
