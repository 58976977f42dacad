"""Requests of brokers for certificates, and the Secrets of authorities."""

import asyncio
from pathlib import Path

from tidemark_broker.security.private_key import PrivateKey
from tidemark_operator.api.kinds import SECRET
from tidemark_operator.security.authorities import Authorities, AuthorityName
from tidemark_operator.security.certificate_authority import CertificateSubject
from tidemark_operator.security.plan_certificates import Lives
from tidemark_operator.security.roll_over import RENEW_AUTHORITY_ANNOTATION, asked_at_s
from tidemark_operator.security.sign_certificate import BrokerCertificate, CertificateSigner
from tidemark_operator.store.sqlite import SqliteStore
from tidemark_protocol.access_messages import SignCertificateRequest, SignCertificateResponse
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId

NAME = AuthorityName("shop", "default-ca", "pool")
LIVES = Lives(certificate_s=10)


def sign(
    path: Path,
    *,
    is_leading: bool = True,
    has_tls: bool = True,
    request: str = "",
    current: str = "",
    broker_id: int = 1,
) -> SignCertificateResponse:
    async def main() -> SignCertificateResponse:
        store = SqliteStore(path / "objects.db")

        async def subject_of(pool: str, broker_id: BrokerId) -> BrokerCertificate | None:
            subject = CertificateSubject((f"{broker_id}.{pool}",))
            return BrokerCertificate(NAME, subject, check_after_s=60) if has_tls else None

        signer = CertificateSigner(
            Authorities(store, lives=LIVES, wall_clock_s=lambda: 1e9),
            subject_of,
            is_leading=lambda: is_leading,
        )
        pem = request or PrivateKey().request_pem("x")
        try:
            return await signer.sign(
                SignCertificateRequest(
                    "shop/default", BrokerId(broker_id), pem, current_pem=current
                )
            )
        finally:
            store.close()

    return asyncio.run(main())


def test_certificate_is_signed_by_the_leading_controller(tmp_path: Path) -> None:
    response = sign(tmp_path)
    assert response.error is ErrorCode.NONE
    assert response.not_after_ms == (10**9 + 10) * 1000
    assert response.authorities_pem.count("BEGIN CERTIFICATE") == 1
    assert sign(tmp_path, is_leading=False).error is ErrorCode.NOT_CONTROLLER


def test_certificate_stays_while_key_names_and_authority_do(tmp_path: Path) -> None:
    key = PrivateKey()
    first = sign(tmp_path, request=key.request_pem("x"))
    assert first.check_after_ms == 60_000
    kept = sign(tmp_path, request=key.request_pem("x"), current=first.certificate_pem)
    assert (kept.error, kept.certificate_pem) == (ErrorCode.NONE, "")
    for response in (
        sign(tmp_path, request=key.request_pem("x"), current=first.certificate_pem, broker_id=2),
        sign(tmp_path, request=PrivateKey().request_pem("x"), current=first.certificate_pem),
        sign(tmp_path, request=key.request_pem("x"), current=key.self_signed_pem("x")),
        sign(tmp_path, request=key.request_pem("x"), current="nonsense"),
    ):
        assert "BEGIN CERTIFICATE" in response.certificate_pem


def test_pool_without_tls_and_strange_requests_are_rejected(tmp_path: Path) -> None:
    assert sign(tmp_path, has_tls=False).error is ErrorCode.INVALID_REQUEST
    assert sign(tmp_path, request="nothing").error is ErrorCode.INVALID_REQUEST


def test_two_operators_use_the_same_authority(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path / "objects.db")
        both = [Authorities(store, lives=LIVES, wall_clock_s=lambda: 1e9) for _ in range(2)]
        first, second = await asyncio.gather(*(each.current(NAME) for each in both))
        assert first.bundle == second.bundle
        store.close()

    asyncio.run(main())


def test_roll_over_goes_on_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path / "objects.db")
        now_s = 1e9
        issuers = []
        for step_s in (0.0, 1.0, 11.0, 21.0):
            again = Authorities(store, lives=LIVES, wall_clock_s=lambda at=now_s + step_s: at)
            asked = int(now_s) + 1 if step_s else 0
            current = await again.current(NAME, asked_at_s=asked)
            issuers.append((current.issuer.fingerprint, len(current.trusted)))
        old, new = issuers[0][0], issuers[2][0]
        assert old != new
        assert issuers == [(old, 1), (old, 2), (new, 2), (new, 1)]
        secret = await store.get(SECRET, "shop", "default-ca")
        assert secret is not None and len(secret["data"]) == 2, "the old key is gone"
        store.close()

    asyncio.run(main())


def test_annotation_asks_for_another_authority() -> None:
    def pool(text: str) -> dict[str, object]:
        return {"metadata": {"annotations": {RENEW_AUTHORITY_ANNOTATION: text}}}

    assert asked_at_s(pool("2026-11-28T00:00:00Z")) == 1795824000
    assert asked_at_s(pool("2026-11-28T00:00:00")) == 0, "a time without a zone is ignored"
    assert asked_at_s(pool("soon")) == 0
    assert asked_at_s({"metadata": {}}) == 0
