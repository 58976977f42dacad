"""Read a client's principal from its certificate: CN is the user, O are its groups.

As in Kubernetes (0186). OpenSSL has verified the chain against the pool's authorities for clients;
what is decided here is whose name a certificate may have. A name that something else gives out is
no client's: Kubernetes' own (`system:`), Tidemark's users (`tidemark:`), brokers and controllers.
"""

import ssl
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from tidemark_protocol.access_messages import Principal
from tidemark_protocol.certificate_names import INTERNAL_DOMAIN

from tidemark_broker.security.exchange import Identity

AUTHENTICATED = "system:authenticated"
RESERVED_PREFIXES = ("system:", "tidemark:")
MAX_NAME_CHARACTERS = 256
MAX_GROUPS = 100

# A distinguished name, as `ssl` returns it.
DistinguishedName = tuple[tuple[tuple[str, str], ...], ...]


class CertificateRejected(Exception):
    """An error: a certificate of a trusted authority that makes no user; the text is for logs."""


@dataclass(frozen=True, slots=True)
class CertifiedClient:
    """The result for one connection: an identity, or why its certificate makes none."""

    identity: Identity | None
    reason: str = ""


def client_of(
    certificate: Mapping[str, Any], *, pool_issuers: Set[DistinguishedName], now_s: float
) -> Identity:
    """Return the identity of a verified certificate; `pool_issuers` issue to brokers only.

    Raises CertificateRejected.
    """
    # A broker's certificate, or one of a user whose authority issues to brokers too, is no user's.
    if certificate.get("issuer") in pool_issuers:
        raise CertificateRejected("it is issued by the authority of this pool's brokers")
    for kind, name in certificate.get("subjectAltName", ()):
        if kind == "DNS" and is_internal(name):
            raise CertificateRejected(f"it names {name}, which is no client")
    ends_s = float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))
    if ends_s <= now_s:
        raise CertificateRejected("it has expired")
    names, groups = _subject(certificate)
    if len(names) != 1:
        raise CertificateRejected(f"expected one common name (CN), found {len(names)}")
    if len(groups) > MAX_GROUPS:
        raise CertificateRejected(f"expected at most {MAX_GROUPS} organisations (O)")
    for name in (*names, *groups):
        _check_name(name)
    return Identity(Principal(names[0], (*groups, AUTHENTICATED)), int(ends_s * 1000))


def is_internal(name: str) -> bool:
    """Return whether a DNS name is one of a broker or a controller."""
    name = name.lower().rstrip(".")
    return name == INTERNAL_DOMAIN or name.endswith("." + INTERNAL_DOMAIN)


def _subject(certificate: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    found: dict[str, list[str]] = {"commonName": [], "organizationName": []}
    for relative in certificate.get("subject", ()):
        for attribute, value in relative:
            if attribute in found:
                found[attribute].append(value)
    return found["commonName"], found["organizationName"]


def _check_name(name: str) -> None:
    if not name or len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
        raise CertificateRejected(f"expected names of 1 to {MAX_NAME_CHARACTERS} characters")
    if name.lower().startswith(RESERVED_PREFIXES) or is_internal(name):
        raise CertificateRejected(f"the name {name} is reserved")
