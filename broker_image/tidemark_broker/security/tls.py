"""Hold the broker's key, its certificate and the authorities that it trusts.

The key is made by this process, lives in its memory and never leaves it; the controller signs a
request for it (0171). Until then, and so that health is served from the start, listeners for
clients use a certificate that this broker signed itself, which no client trusts.

A renewal changes contexts that exist where OpenSSL allows it, else makes new ones: handshakes from
then on use the new certificate, and connections that are open live on.

Clients may show a certificate of an authority that the pool accepts for clients (0186). Those
authorities are in a file, and are no others: brokers' own authorities make no users, and on the
replication listener only brokers' authorities count.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, cast

from tidemark_protocol.certificate_names import (
    broker_certificate_name,
    broker_of_certificate_name,
)
from tidemark_protocol.ids import BrokerId

from tidemark_broker.security.client_certificate import (
    CertificateRejected,
    CertifiedClient,
    DistinguishedName,
    client_of,
)

_log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_SECONDS = 10.0
SHUTDOWN_TIMEOUT_SECONDS = 5.0


class TlsMode(StrEnum):
    """Which connections a listener accepts, or the listeners of a broker."""

    DISABLED = "false"  # plain ones
    OPTIONAL = "optional"  # both, told apart by the first byte
    REQUIRED = "true"


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """The broker at the other end of a connection, until its certificate ends."""

    broker_id: BrokerId
    left_s: float


class KeyPair(Protocol):
    """The private key of this broker: `private_key.PrivateKey`.

    A protocol, so that a broker without TLS does not import `cryptography`.
    """

    def request_pem(self, name: str) -> str: ...
    def self_signed_pem(self, name: str) -> str: ...

    def end_of(self, certificate_pem: str) -> float:
        """Return when a certificate for this key ends.

        Raises ValueError for one of another key.
        """
        ...

    def load(self, context: ssl.SSLContext, certificate_pem: str) -> None: ...


class BrokerTls:
    """The TLS contexts of one broker."""

    def __init__(
        self,
        pool: str,
        broker_id: BrokerId,
        key: KeyPair,
        wall_clock_s: Callable[[], float],
        client_authorities: Path | None = None,
    ) -> None:
        """Create it; `client_authorities` is a file with authorities of clients' certificates."""
        self._pool = pool
        self._wall_clock_s = wall_clock_s
        self._broker_id = broker_id
        self._key = key
        self.ends_s = 0.0  # of the controller's certificate, wall clock; 0: there is none yet
        self._chain_pem = key.self_signed_pem(f"broker {broker_id}")
        self._client_authorities = client_authorities
        self._client_authorities_pem = ""
        self._client_authorities_problem = ""
        self.client_authorities_end_s = 0.0  # the first end of one, wall clock; 0: there is none
        self._clients_changed = asyncio.Event()
        self.clients = self._new_clients("")
        self._peers_in: ssl.SSLContext | None = None
        self._pool_issuers: frozenset[DistinguishedName] = frozenset()
        # They trust no authority before `install`. Ports of clients are called without a
        # certificate: it would be one of no client.
        self.peers_out = _peer_client_context()
        self.as_client = _peer_client_context()
        self.check_client_authorities()

    @property
    def peers_in(self) -> ssl.SSLContext:
        """Return the context of the replication listener; there is one after `install`."""
        assert self._peers_in is not None, "install first"
        return self._peers_in

    def request_pem(self) -> str:
        """Return a certificate signing request of the key."""
        return self._key.request_pem(f"broker {self._broker_id}")

    @property
    def certificate_pem(self) -> str:
        """Return the controller's certificate, or "" before there is one."""
        return self._chain_pem if self.ends_s else ""

    def install(self, certificate_pem: str, authorities_pem: str) -> None:
        """Use a certificate of the controller, and trust these authorities in peers.

        Raises ValueError for a certificate that does not fit.
        """
        ends_s = self._key.end_of(certificate_pem)
        peers_in = _server_context(ssl.TLSVersion.TLSv1_3)
        peers_in.verify_mode = ssl.CERT_REQUIRED
        peers_in.load_verify_locations(cadata=authorities_pem)
        # An authority of a user may be below others, which issue to more than brokers.
        peers_in.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        peers_out, as_client = _peer_client_context(), _peer_client_context()
        for context in (peers_out, as_client):
            context.load_verify_locations(cadata=authorities_pem)
        for context in (peers_in, peers_out, self.clients):
            self._key.load(context, certificate_pem)
        self._chain_pem = certificate_pem
        authorities = cast(list[dict[str, Any]], peers_in.get_ca_certs())
        self._pool_issuers = frozenset(each["subject"] for each in authorities)
        self._peers_in, self.peers_out, self.as_client = peers_in, peers_out, as_client
        self.ends_s = ends_s

    def check_client_authorities(self) -> None:
        """Read the authorities of clients if their file changed.

        A file that cannot be read is logged, and the former authorities stay; an empty one accepts
        no client's certificate.
        """
        if self._client_authorities is None:
            return
        try:
            text = self._client_authorities.read_text()
            if text == self._client_authorities_pem:
                self._client_authorities_problem = ""
                return
            clients = self._new_clients(text)
        except (OSError, ssl.SSLError, ValueError) as error:
            problem = str(error)
            if problem != self._client_authorities_problem:
                file = str(self._client_authorities)
                _log.error(
                    "authorities of clients not read", extra={"file": file, "reason": problem}
                )
            self._client_authorities_problem = problem
            return
        self.clients, self._client_authorities_pem = clients, text
        self._client_authorities_problem = ""
        found = clients.get_ca_certs()
        ends_s = [float(ssl.cert_time_to_seconds(str(each["notAfter"]))) for each in found]
        self.client_authorities_end_s = min(ends_s, default=0.0)
        _log.info("authorities of clients read", extra={"authorities": len(found)})
        self._clients_changed.set()
        self._clients_changed = asyncio.Event()

    async def next_clients(self, former: ssl.SSLContext) -> ssl.SSLContext:
        """Return the context of client listeners once it is another than `former`."""
        while self.clients is former:
            await self._clients_changed.wait()
        return self.clients

    def client_of(self, certificate: Mapping[str, Any] | None) -> CertifiedClient | None:
        """Return which client a verified certificate names, or None without a certificate."""
        if not certificate:
            return None
        try:
            identity = client_of(
                certificate, pool_issuers=self._pool_issuers, now_s=self._wall_clock_s()
            )
        except CertificateRejected as error:
            return CertifiedClient(None, str(error))
        return CertifiedClient(identity)

    def _new_clients(self, authorities_pem: str) -> ssl.SSLContext:
        context = _server_context(ssl.TLSVersion.TLSv1_2)
        self._key.load(context, self._chain_pem)
        if authorities_pem.strip():
            context.verify_mode = ssl.CERT_OPTIONAL
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.load_verify_locations(cadata=authorities_pem)
        return context

    def peer_of(self, certificate: Mapping[str, Any] | None) -> PeerIdentity | None:
        """Return who a verified certificate names, or None if it is no broker of this pool."""
        if not certificate:
            return None
        for kind, name in certificate.get("subjectAltName", ()):
            found = broker_of_certificate_name(name) if kind == "DNS" else None
            if found is not None and found[0] == self._pool:
                ends_s = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
                return PeerIdentity(found[1], self.left_seconds(ends_s))
        return None

    def left_seconds(self, ends_s: float) -> float:
        """Return the time until this moment of the wall clock, 0 after it."""
        return max(0.0, ends_s - self._wall_clock_s())

    def peer_name(self, broker_id: BrokerId) -> str:
        """Return the name that a broker's certificate must have."""
        return broker_certificate_name(self._pool, broker_id)


class TrustedFile:
    """A context that trusts the authorities of a file, read again when the file changes."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises OSError and ssl.SSLError.
        """
        self._path = path
        self._text = ""
        self.context = self._read()

    def check(self) -> None:
        """Read the file if it changed; one that cannot be read is logged, and the old one stays."""
        try:
            if self._path.read_text() != self._text:
                self.context = self._read()
        except (OSError, ssl.SSLError, ValueError) as error:
            _log.error(
                "trusted authorities not read",
                extra={"file": str(self._path), "reason": str(error)},
            )

    def _read(self) -> ssl.SSLContext:
        text = self._path.read_text()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=text)
        self._text = text
        return context


def _server_context(oldest: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = oldest
    # A ticket costs more than resuming saves, and few clients resume (0191); brokers never do, as
    # each connection shows its certificate.
    context.num_tickets = 0
    return context


def _peer_client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
