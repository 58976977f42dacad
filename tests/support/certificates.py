"""Certificate authorities and brokers' keys for tests."""

import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path

from tidemark_broker.security.private_key import PrivateKey
from tidemark_broker.security.tls import BrokerTls
from tidemark_operator.security.certificate_authority import (
    Authority,
    CertificateSubject,
    UserSubject,
    bundle,
)
from tidemark_operator.security.server_context import load_certificate
from tidemark_protocol.certificate_names import broker_certificate_name
from tidemark_protocol.ids import BrokerId

POOL = "shop/default"
HOUR_S = 3600


def new_authority(name: str = "pool", *, life_s: int = 100 * HOUR_S) -> Authority:
    return Authority.create(name, now_s=int(time.time()), life_s=life_s)


@dataclass
class TestPool:
    """A pool's authority, and brokers with certificates of it."""

    __test__ = False

    pool: str = POOL
    authority: Authority = field(default_factory=new_authority)

    def broker(
        self,
        broker_id: int,
        *,
        named: str = "",
        life_s: int = HOUR_S,
        trusts: tuple[Authority, ...] = (),
        clients: Path | None = None,
    ) -> BrokerTls:
        tls = BrokerTls(self.pool, BrokerId(broker_id), PrivateKey(), time.time, clients)
        self.renew(tls, broker_id, named=named, life_s=life_s, trusts=trusts)
        return tls

    def renew(
        self,
        tls: BrokerTls,
        broker_id: int,
        *,
        named: str = "",
        life_s: int = HOUR_S,
        trusts: tuple[Authority, ...] = (),
    ) -> None:
        name = named or broker_certificate_name(self.pool, BrokerId(broker_id))
        subject = CertificateSubject((name, "localhost"), ("127.0.0.1",))
        issued = self.authority.issue(
            tls.request_pem(), subject, now_s=int(time.time()), life_s=life_s
        )
        tls.install(issued.pem, bundle(trusts or (self.authority,)))


def client_context(
    authority: Authority,
    user: str,
    groups: tuple[str, ...] = (),
    *,
    trusts: Authority,
    life_s: int = HOUR_S,
) -> ssl.SSLContext:
    """The context of a client with a certificate of this authority."""
    found = authority.issue_with_key(
        UserSubject(user, groups), now_s=int(time.time()), life_s=life_s
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=trusts.certificate_pem)
    load_certificate(context, found)
    return context
