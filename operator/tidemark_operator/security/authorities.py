"""Keep the certificate authorities of pools and of the controller in Secrets, and issue with them.

One object of a Secret is written by compare-and-set: of two operators that create an authority one
wins, and the other uses the winner's.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from tidemark_operator.api.kinds import SECRET
from tidemark_operator.resources.secret import authorities_of, authority_secret
from tidemark_operator.security.certificate_authority import (
    Authority,
    CertificateSubject,
    CertificateWithKey,
    InvalidAuthority,
    IssuedCertificate,
    bundle,
)
from tidemark_operator.security.plan_certificates import (
    AuthorityTimes,
    CertificatePlan,
    Lives,
    plan_certificates,
)
from tidemark_operator.store.object_store import AlreadyExists, Conflict, ObjectStore

_log = logging.getLogger(__name__)

ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class AuthorityName:
    """The Secret of one pool's authorities, or of the controller's."""

    namespace: str
    secret: str
    title: str  # in certificates, for people


@dataclass(frozen=True, slots=True)
class CurrentAuthorities:
    issuer: Authority
    trusted: tuple[Authority, ...]

    @property
    def bundle(self) -> str:
        return bundle(self.trusted)


class Authorities:
    def __init__(
        self, store: ObjectStore, *, lives: Lives, wall_clock_s: Callable[[], float]
    ) -> None:
        self.lives = lives
        self._store = store
        self._wall_clock_s = wall_clock_s

    async def current(self, name: AuthorityName, *, asked_at_s: int = 0) -> CurrentAuthorities:
        """Return the authorities, after what is due was done.

        `asked_at_s` asks for a roll-over to an authority that is younger than that moment. Raises
        StoreError, and InvalidAuthority for a Secret that cannot be read.
        """
        for _ in range(ATTEMPTS):
            try:
                return await self._settle(name, asked_at_s)
            except (AlreadyExists, Conflict):
                continue
        raise Conflict(f"Secret {name.namespace}/{name.secret}: changed in {ATTEMPTS} attempts")

    async def issue(
        self, name: AuthorityName, request_pem: str, subject: CertificateSubject
    ) -> tuple[IssuedCertificate, CurrentAuthorities]:
        """Issue a certificate.

        Raises InvalidRequest, and what `current` raises.
        """
        current = await self.current(name)
        now_s = int(self._wall_clock_s())
        issued = current.issuer.issue(
            request_pem, subject, now_s=now_s, life_s=self.lives.certificate_s
        )
        return issued, current

    def issue_with_key(
        self, current: CurrentAuthorities, subject: CertificateSubject
    ) -> CertificateWithKey:
        """Issue a certificate for this process itself."""
        now_s = int(self._wall_clock_s())
        return current.issuer.issue_with_key(subject, now_s=now_s, life_s=self.lives.certificate_s)

    async def _settle(self, name: AuthorityName, asked_at_s: int) -> CurrentAuthorities:
        stored = await self._store.get(SECRET, name.namespace, name.secret)
        try:
            found = [
                Authority.parse(certificate, key, created_s=created_s)
                for created_s, certificate, key in authorities_of(stored or {})
            ]
        except ValueError as error:
            raise InvalidAuthority(f"Secret {name.namespace}/{name.secret}: {error}") from error
        now_s = int(self._wall_clock_s())
        plan = self._plan(found, now_s, asked_at_s)
        if plan.creates or plan.dropped:
            kept = [each for each in found if each.fingerprint not in plan.dropped]
            if plan.creates:
                kept.append(
                    Authority.create(name.title, now_s=now_s, life_s=self.lives.authority_s)
                )
            items = [(each.created_s, each.certificate_pem, each.key_pem) for each in kept]
            secret = authority_secret(name.namespace, name.secret, items, stored)
            if stored is None:
                await self._store.create(SECRET, secret)
            else:
                await self._store.replace(SECRET, secret)
            _log.info(
                "certificate authorities changed",
                extra={
                    "secret": f"{name.namespace}/{name.secret}",
                    "new_authority": plan.creates,
                    "dropped": [each[:16] for each in plan.dropped],
                },
            )
            found, plan = kept, self._plan(kept, now_s, asked_at_s)
        by_fingerprint = {each.fingerprint: each for each in found}
        return CurrentAuthorities(
            by_fingerprint[plan.issuer], tuple(by_fingerprint[each] for each in plan.trusted)
        )

    def _plan(self, found: list[Authority], now_s: int, asked_at_s: int) -> CertificatePlan:
        times = [AuthorityTimes(each.fingerprint, each.created_s, each.ends_s) for each in found]
        return plan_certificates(times, now_s=now_s, lives=self.lives, asked_at_s=asked_at_s)
