"""Say where and how other brokers of the pool are reached: plain, or by mutual TLS."""

import ssl
from typing import Any, NamedTuple

from tidemark_protocol.controller_messages import Endpoints
from tidemark_protocol.ids import BrokerId

from tidemark_broker.security.tls import (
    HANDSHAKE_TIMEOUT_SECONDS,
    SHUTDOWN_TIMEOUT_SECONDS,
    BrokerTls,
)


class PeerAddress(NamedTuple):
    host: str
    port: int
    context: ssl.SSLContext | None = None
    name: str = ""  # that its certificate must have

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.context is None else 'https'}://{host}:{self.port}"

    def connect_options(self) -> dict[str, Any]:
        """Return the arguments of `create_connection` for TLS."""
        if self.context is None:
            return {}
        return {
            "ssl": self.context,
            "server_hostname": self.name,
            "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_SECONDS,
            "ssl_shutdown_timeout": SHUTDOWN_TIMEOUT_SECONDS,
        }

    def request_options(self) -> dict[str, Any]:
        """Return the arguments of a request of aiohttp for TLS."""
        return {} if self.context is None else {"ssl": self.context, "server_hostname": self.name}


class PeerAddresses:
    """The addresses of brokers, for requests of this broker."""

    def __init__(self, tls: BrokerTls | None = None, *, allows_plain: bool = False) -> None:
        """Create it; with `allows_plain` brokers that have no TLS yet are called without it."""
        self._tls = tls
        self._allows_plain = allows_plain

    def kafka(self, broker_id: BrokerId, endpoints: Endpoints) -> PeerAddress:
        """Return the address for requests on behalf of clients."""
        return self._address(broker_id, endpoints, endpoints.kafka_port, of_clients=True)

    def replication(self, broker_id: BrokerId, endpoints: Endpoints) -> PeerAddress:
        """Return the address for fetches of followers."""
        port = endpoints.replication_port or endpoints.kafka_port
        return self._address(broker_id, endpoints, port, of_clients=False)

    def http(self, broker_id: BrokerId, endpoints: Endpoints) -> PeerAddress:
        return self._address(broker_id, endpoints, endpoints.http_port, of_clients=True)

    def _address(
        self, broker_id: BrokerId, endpoints: Endpoints, port: int, *, of_clients: bool
    ) -> PeerAddress:
        tls = self._tls
        if tls is None or (self._allows_plain and not endpoints.has_tls):
            return PeerAddress(endpoints.host, port)
        context = tls.as_client if of_clients else tls.peers_out
        return PeerAddress(endpoints.host, port, context, tls.peer_name(broker_id))


PLAIN = PeerAddresses()
