"""Trust the brokers of pools, for requests of this process to them.

Addresses change and pods of other brokers take them over, so a broker is known by the name in its
certificate, whatever address is dialled (0171).
"""

import ssl
from typing import Any

from tidemark_protocol.certificate_names import broker_certificate_name
from tidemark_protocol.controller_messages import Endpoints
from tidemark_protocol.ids import BrokerId


class BrokerTrust:
    """The authorities of each pool."""

    def __init__(self) -> None:
        self._bundles: dict[str, str] = {}  # by pool
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._trusts_none = _context("")

    def trust(self, pool: str, bundle: str) -> None:
        """Trust these authorities in the brokers of a pool, and no others."""
        if self._bundles.get(pool) != bundle:
            self._contexts[pool] = _context(bundle)
            self._bundles[pool] = bundle

    def http_url(self, endpoints: Endpoints) -> str:
        host = f"[{endpoints.host}]" if ":" in endpoints.host else endpoints.host
        scheme = "https" if endpoints.has_tls else "http"
        return f"{scheme}://{host}:{endpoints.http_port}"

    def options(self, pool: str, broker_id: BrokerId, endpoints: Endpoints) -> dict[str, Any]:
        """Return the arguments of a request of aiohttp to this broker."""
        if not endpoints.has_tls:
            return {}
        return {
            "ssl": self._contexts.get(pool, self._trusts_none),
            "server_hostname": broker_certificate_name(pool, broker_id),
        }


def _context(bundle: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies chain and name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # of a user's authority, below others
    if bundle:
        context.load_verify_locations(cadata=bundle)
    return context
