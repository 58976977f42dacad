"""Trust the brokers of pools, for requests of this process to them."""

import ssl
from typing import Any

from tidemark_protocol.controller_messages import Endpoints


class BrokerTrust:
    """The authorities of all pools."""

    def __init__(self) -> None:
        self._bundles: dict[str, str] = {}  # by pool
        self._context = _context("")

    def trust(self, pool: str, bundle: str) -> None:
        """Trust these authorities in the brokers of a pool, and no others."""
        if self._bundles.get(pool) != bundle:
            self._bundles[pool] = bundle
            self._context = _context("".join(self._bundles.values()))

    def http_url(self, endpoints: Endpoints) -> str:
        host = f"[{endpoints.host}]" if ":" in endpoints.host else endpoints.host
        scheme = "https" if endpoints.has_tls else "http"
        return f"{scheme}://{host}:{endpoints.http_port}"

    def options(self, endpoints: Endpoints) -> dict[str, Any]:
        """Return the arguments of a request of aiohttp."""
        return {"ssl": self._context} if endpoints.has_tls else {}


def _context(bundle: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Addresses change and names are not known here: any broker of any pool is trusted to tell its
    # own health, and the response names its incarnation.
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # of a user's authority, below others
    if bundle:
        context.load_verify_locations(cadata=bundle)
    return context
