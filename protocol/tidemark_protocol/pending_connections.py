"""Bound the connections of one listener whose clients are not known yet.

A client that authenticates does so in milliseconds. When too many connections are open without it,
of one address or of all, the oldest one of the address with the most is ended: a flood ends its
own connections first. Connections of known clients are not counted. No I/O.
"""

from dataclasses import dataclass, field
from typing import Protocol


class PendingConnection(Protocol):
    def reject(self, kind: str, reason: str) -> None: ...


TOO_MANY = "too many unauthenticated connections"


@dataclass(slots=True)
class PendingConnections:
    limit: int
    limit_of_address: int
    _by_address: dict[str, dict[PendingConnection, None]] = field(default_factory=dict)  # by age
    _addresses: dict[PendingConnection, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._addresses)

    def join(self, connection: PendingConnection, address: str) -> None:
        """Add a connection; end one that is open if there are too many."""
        if len(self._by_address.get(address, ())) >= self.limit_of_address:
            self._end_oldest(address, f"{self.limit_of_address} of this address")
        elif len(self._addresses) >= self.limit:
            most = max(self._by_address, key=lambda each: len(self._by_address[each]))
            self._end_oldest(most, f"{self.limit}")
        self._addresses[connection] = address
        self._by_address.setdefault(address, {})[connection] = None

    def forget(self, connection: PendingConnection) -> bool:
        """Forget a connection whose client is known, or that is gone; return if it was here."""
        address = self._addresses.pop(connection, None)
        if address is None:
            return False
        of_address = self._by_address[address]
        del of_address[connection]
        if not of_address:
            del self._by_address[address]
        return True

    def _end_oldest(self, address: str, count: str) -> None:
        oldest = next(iter(self._by_address[address]))
        self.forget(oldest)
        oldest.reject(TOO_MANY, f"{count} connections are open without authentication")
