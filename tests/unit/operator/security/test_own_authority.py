"""An authority of a user: read from a Secret as cert-manager writes it, and rolled over."""

import asyncio
import base64
import ssl
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID
from tidemark_broker.security.private_key import PrivateKey
from tidemark_broker.security.tls import BrokerTls
from tidemark_operator.api.kinds import SECRET, Object, ResourceKind
from tidemark_operator.resources.secret import source_of
from tidemark_operator.security.authorities import Authorities, AuthorityName, CurrentAuthorities
from tidemark_operator.security.certificate_authority import (
    Authority,
    AuthorityKey,
    CertificateSubject,
    InvalidAuthority,
)
from tidemark_operator.security.plan_certificates import (
    Adoption,
    AuthorityTimes,
    Lives,
    plan_adoption,
)
from tidemark_operator.store.object_store import Forbidden
from tidemark_operator.store.sqlite import SqliteStore
from tidemark_protocol.certificate_names import broker_certificate_name
from tidemark_protocol.ids import BrokerId

from tests.support.certificates import POOL

LIFE_S = 10
LIVES = Lives(certificate_s=LIFE_S)
OWN = AuthorityName("operators", "shop.default-ca", "pool")
FROM_SECRET = AuthorityName("operators", "shop.default-ca", "pool", ("shop", "pki"))


def new_ca(
    name: str, key: AuthorityKey, *, issuer: Authority | None = None, ends_s: float = 3600
) -> Authority:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(seconds=ends_s))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    signer = key if issuer is None else issuer.key
    algorithm = None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    above = () if issuer is None else issuer.chain
    return Authority(builder.sign(signer, algorithm), key, 0, above)


def ec_ca(name: str, **more: Any) -> Authority:
    return new_ca(name, ec.generate_private_key(ec.SECP256R1()), **more)


def secret_of(authority: Authority, **changed: str | None) -> Object:
    """As cert-manager writes it: the chain without the root, which is in ca.crt."""
    chain = authority.chain
    pem = [each.public_bytes(serialization.Encoding.PEM).decode() for each in chain]
    data = {
        "tls.crt": "".join(pem[: max(1, len(pem) - 1)]),
        "tls.key": authority.key_pem,
        "ca.crt": pem[-1],
    }
    for name, value in changed.items():
        data.pop(name.replace("_", "."))
        if value is not None:
            data[name.replace("_", ".")] = value
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": "shop", "name": "pki"},
        "data": {name: base64.b64encode(value.encode()).decode() for name, value in data.items()},
    }


class Clock:
    def __init__(self) -> None:
        self.now_s = time.time()


class Operator:
    def __init__(self, store: SqliteStore, clock: Clock) -> None:
        self.store, self.clock = store, clock
        self.authorities = Authorities(store, lives=LIVES, wall_clock_s=lambda: clock.now_s)

    async def current(self, name: AuthorityName = FROM_SECRET) -> CurrentAuthorities:
        return await self.authorities.current(name)

    async def put(self, secret: Object) -> None:
        stored = await self.store.get(SECRET, "shop", "pki")
        if stored is None:
            await self.store.create(SECRET, secret)
        else:
            await self.store.replace(SECRET, {**stored, "data": secret["data"]})


def with_operator(path: Path, scenario: Callable[[Operator], Awaitable[None]]) -> None:
    async def main() -> None:
        store = SqliteStore(path / "objects.db")
        try:
            await scenario(Operator(store, Clock()))
        finally:
            store.close()

    asyncio.run(main())


def test_the_secret_of_a_new_pool_issues_immediately(tmp_path: Path) -> None:
    authority = ec_ca("own")

    async def scenario(operator: Operator) -> None:
        with pytest.raises(InvalidAuthority, match="Secret shop/pki: not found"):
            await operator.current()
        await operator.put(secret_of(authority))
        current = await operator.current()
        assert current.issuer.fingerprint == authority.fingerprint
        assert current.problem == ""
        stored = await operator.store.get(SECRET, "operators", "shop.default-ca")
        assert source_of(stored) == "pki"

    with_operator(tmp_path, scenario)


def test_a_changed_secret_is_a_roll_over_in_steps(tmp_path: Path) -> None:
    first, second = ec_ca("first"), ec_ca("second")

    async def scenario(operator: Operator) -> None:
        await operator.put(secret_of(first))
        await operator.current()
        operator.clock.now_s += 100 * LIFE_S
        await operator.put(secret_of(second))
        for wait_s, issuer, trusted in (
            (0, first, (first, second)),
            (LIFE_S, second, (first, second)),
            (LIFE_S, second, (second,)),
        ):
            operator.clock.now_s += wait_s
            current = await operator.current()
            assert current.issuer.fingerprint == issuer.fingerprint
            assert [each.fingerprint for each in current.trusted] == [
                each.fingerprint for each in trusted
            ]

    with_operator(tmp_path, scenario)


def test_a_pool_changes_from_the_operators_authority_to_its_own_and_back(tmp_path: Path) -> None:
    own = ec_ca("own")

    async def scenario(operator: Operator) -> None:
        made = (await operator.current(OWN)).issuer
        await operator.put(secret_of(own))
        operator.clock.now_s += 100
        assert (await operator.current()).issuer.fingerprint == made.fingerprint
        operator.clock.now_s += LIFE_S
        assert (await operator.current()).issuer.fingerprint == own.fingerprint
        operator.clock.now_s += LIFE_S
        back = await operator.current(OWN)
        assert back.issuer.fingerprint == own.fingerprint
        assert len(back.trusted) == 2
        operator.clock.now_s += 2 * LIFE_S
        back = await operator.current(OWN)
        assert back.issuer.certificate.subject == made.certificate.subject
        assert len(back.trusted) == 1
        assert len((await operator.current(OWN)).trusted) == 1

    with_operator(tmp_path, scenario)


@pytest.mark.parametrize(
    ("secret", "sentence"),
    [
        (lambda: secret_of(ec_ca("x"), tls_crt=None), "expected the key tls.crt"),
        (lambda: secret_of(ec_ca("x"), tls_key=None), "expected the key tls.key"),
        (lambda: secret_of(ec_ca("x"), tls_key=ec_ca("y").key_pem), "not the certificate's"),
        (lambda: secret_of(ec_ca("x"), tls_crt="nonsense"), "expected a PEM certificate"),
        (lambda: secret_of(ec_ca("x", ends_s=-60)), "expired at"),
        (lambda: secret_of(new_ca("x", rsa.generate_private_key(65537, 1024))), "2048 bits"),
    ],
)
def test_the_former_authority_stays_while_the_secret_is_not_usable(
    tmp_path: Path, secret: Callable[[], Object], sentence: str
) -> None:
    good = ec_ca("good")

    async def scenario(operator: Operator) -> None:
        await operator.put(secret_of(good))
        await operator.current()
        await operator.put(secret())
        current = await operator.current()
        assert current.issuer.fingerprint == good.fingerprint
        assert current.problem.startswith("Secret shop/pki: ")
        assert sentence in current.problem

    with_operator(tmp_path, scenario)


class WithoutPermission(SqliteStore):
    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        if namespace == "shop":
            raise Forbidden("secrets is forbidden")
        return await super().get(kind, namespace, name)


def test_a_missing_permission_is_told_with_what_to_do(tmp_path: Path) -> None:
    async def main() -> None:
        store = WithoutPermission(tmp_path / "objects.db")
        try:
            with pytest.raises(InvalidAuthority, match="allow it by a Role"):
                await Operator(store, Clock()).current()
        finally:
            store.close()

    asyncio.run(main())


A, B = AuthorityTimes("a", 0, 10_000), AuthorityTimes("b", 100, 10_000)


@pytest.mark.parametrize(
    ("authorities", "wanted", "now_s", "expected"),
    [
        ([], "a", 0, Adoption.ADD),
        ([A], "a", 50, Adoption.KEEP),
        ([A], "b", 50, Adoption.ADD),
        ([A, B], "b", 105, Adoption.KEEP),
        ([A, B], "a", 105, Adoption.RETURN),  # b is trusted only: nothing is issued by it
        ([A, B], "c", 105, Adoption.WAIT),
        ([A, B], "a", 110, Adoption.ADD),  # b issues: a follows it
        ([A, B], "c", 110, Adoption.ADD),
        ([A], "b", 10_000, Adoption.ADD),
    ],
)
def test_which_step_is_due(
    authorities: list[AuthorityTimes], wanted: str, now_s: int, expected: Adoption
) -> None:
    assert plan_adoption(authorities, wanted, now_s=now_s, lives=LIVES) is expected


@pytest.mark.parametrize(
    "new_key",
    [
        lambda: ec.generate_private_key(ec.SECP384R1()),
        lambda: rsa.generate_private_key(65537, 2048),
        ed25519.Ed25519PrivateKey.generate,
    ],
)
def test_brokers_trust_the_issuing_authority_alone_and_clients_its_root(
    tmp_path: Path, new_key: Callable[[], AuthorityKey]
) -> None:
    root = ec_ca("root")
    issuing = new_ca("issuing", new_key(), issuer=root)
    sibling = ec_ca("sibling", issuer=root)

    async def scenario(operator: Operator) -> None:
        await operator.put(secret_of(issuing))
        current = await operator.current()
        assert current.bundle.count("BEGIN") == 1
        assert current.bundle_of_clients.count("BEGIN") == 2
        first, second = (broker(each, issuing, current) for each in (1, 2))
        assert handshake(first.peers_in, second.peers_out, first.peer_name(BrokerId(1)))
        of_sibling = broker(2, sibling, current)
        with pytest.raises(ssl.SSLError):  # the root is not trusted, so others below it are not
            handshake(first.peers_in, of_sibling.peers_out, first.peer_name(BrokerId(1)))
        client = ssl.create_default_context(cadata=root.certificate_pem)
        assert handshake(first.clients, client, first.peer_name(BrokerId(1)))

    with_operator(tmp_path, scenario)


def broker(number: int, authority: Authority, trusted: CurrentAuthorities) -> BrokerTls:
    tls = BrokerTls(POOL, BrokerId(number), PrivateKey(), time.time)
    subject = CertificateSubject((broker_certificate_name(POOL, BrokerId(number)),))
    issued = authority.issue(tls.request_pem(), subject, now_s=int(time.time()), life_s=60)
    tls.install(issued.pem, trusted.bundle)
    return tls


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> bool:
    """Shake hands in memory. Raises ssl.SSLError."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        waiting = list(ends)
        for end in waiting:
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                pass
        if not ends:
            return True
    return False
