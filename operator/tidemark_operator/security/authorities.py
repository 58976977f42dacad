"""Keep the certificate authorities of pools and of the controller in Secrets, and issue with them.

One object of a Secret is written by compare-and-set: of two operators that create an authority one
wins, and the other uses the winner's.

A pool's authority may come from a Secret of a user (0187). It is copied, so that the roll-over to
another one goes on whatever becomes of that Secret, and the former stays while it is not usable.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from tidemark_operator.api.kinds import SECRET, Object
from tidemark_operator.resources.secret import (
    authorities_of,
    authority_secret,
    own_authority_of,
    source_of,
)
from tidemark_operator.security.certificate_authority import (
    Authority,
    CertificateSubject,
    CertificateWithKey,
    InvalidAuthority,
    IssuedCertificate,
    Subject,
    bundle,
    bundle_of_clients,
    is_current,
)
from tidemark_operator.security.plan_certificates import (
    Adoption,
    AuthorityTimes,
    CertificatePlan,
    Lives,
    plan_adoption,
    plan_certificates,
)
from tidemark_operator.store.object_store import AlreadyExists, Conflict, Forbidden, ObjectStore

_log = logging.getLogger(__name__)

ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class AuthorityName:
    """The Secret of one pool's authorities, or of the controller's."""

    namespace: str
    secret: str
    title: str  # in certificates, for people
    source: tuple[str, str] | None = None  # namespace and name of the user's Secret


@dataclass(frozen=True, slots=True)
class CurrentAuthorities:
    issuer: Authority
    trusted: tuple[Authority, ...]
    problem: str = ""  # of the user's Secret; a sentence for the user

    @property
    def bundle(self) -> str:
        return bundle(self.trusted)

    @property
    def bundle_of_clients(self) -> str:
        return bundle_of_clients(self.trusted)


@dataclass(frozen=True, slots=True)
class _Change:
    """The authorities to have now, if they are others than those stored."""

    kept: list[Authority]
    problem: str = ""


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

    async def is_current(
        self, name: AuthorityName, current_pem: str, request_pem: str, subject: CertificateSubject
    ) -> bool:
        """Return whether a broker's certificate is as one that would be issued now.

        Raises what `current` raises.
        """
        current = await self.current(name)
        return is_current(current_pem, request_pem, subject, current.issuer)

    def issue_with_key(
        self, current: CurrentAuthorities, subject: Subject, life_s: int | None = None
    ) -> CertificateWithKey:
        """Issue a certificate with its key: of this process itself, or of a user of local mode."""
        now_s = int(self._wall_clock_s())
        life_s = self.lives.certificate_s if life_s is None else life_s
        return current.issuer.issue_with_key(subject, now_s=now_s, life_s=life_s)

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
        if name.source is None:
            change = _Change(self._created(name, found, source_of(stored), now_s, asked_at_s))
        else:
            change = await self._adopted(name.source, found, now_s)
        source = "" if name.source is None else name.source[1]
        if change.kept != found:
            await self._write(name, found, change.kept, stored, source)
        plan = self._plan(change.kept, now_s, 0)
        by_fingerprint = {each.fingerprint: each for each in change.kept}
        return CurrentAuthorities(
            by_fingerprint[plan.issuer],
            tuple(by_fingerprint[each] for each in plan.trusted),
            change.problem,
        )

    def _created(
        self,
        name: AuthorityName,
        found: list[Authority],
        former_source: str,
        now_s: int,
        asked_at_s: int,
    ) -> list[Authority]:
        """Return the authorities, with a new one if it is due or the newest is a user's."""
        plan = self._plan(found, now_s, now_s + 1 if former_source else asked_at_s)
        kept = [each for each in found if each.fingerprint not in plan.dropped]
        if plan.creates:
            created_s = _after(kept, now_s)
            made = Authority.create(name.title, now_s=created_s, life_s=self.lives.authority_s)
            kept.append(made)
        return kept

    async def _adopted(
        self, source: tuple[str, str], found: list[Authority], now_s: int
    ) -> _Change:
        """Return the authorities, with that of the user's Secret if it is usable.

        Raises StoreError, and InvalidAuthority if there is no authority at all.
        """
        problem, wanted = "", None
        try:
            wanted = await self._read_source(source, now_s)
        except InvalidAuthority as error:
            problem = f"Secret {source[0]}/{source[1]}: {error}"
        kept = list(found)
        if wanted is not None:
            times = [AuthorityTimes(each.fingerprint, each.created_s, each.ends_s) for each in kept]
            fingerprint = wanted.fingerprint
            match plan_adoption(times, fingerprint, now_s=now_s, lives=self.lives):
                case Adoption.ADD:
                    kept = [each for each in kept if each.fingerprint != fingerprint]
                    kept.append(replace(wanted, created_s=_after(kept, now_s)))
                case Adoption.RETURN:
                    issuer = next(each for each in kept if each.fingerprint == fingerprint)
                    kept = [each for each in kept if each.created_s <= issuer.created_s]
                case Adoption.WAIT:
                    problem = (
                        f"Secret {source[0]}/{source[1]}: it changed during a roll-over; the"
                        " change is taken over after it"
                    )
                case Adoption.KEEP:
                    pass
        dropped = self._plan(kept, now_s, 0).dropped
        valid = [each for each in kept if each.fingerprint not in dropped]
        if not valid:
            raise InvalidAuthority(problem)
        return _Change(valid, problem)

    async def _read_source(self, source: tuple[str, str], now_s: int) -> Authority:
        """Read the user's Secret.

        Raises StoreError, and InvalidAuthority with a text for the user.
        """
        try:
            secret = await self._store.get(SECRET, *source)
        except Forbidden as error:
            raise InvalidAuthority(
                "the operator may not get it; allow it by a Role with resourceNames and a"
                f" RoleBinding (docs/operations/tls.md): {error}"
            ) from error
        if secret is None:
            raise InvalidAuthority("not found; create it, with tls.crt and tls.key of a CA")
        try:
            wanted = Authority.parse(*own_authority_of(secret), created_s=now_s)
        except ValueError as error:
            raise InvalidAuthority(str(error)) from error
        begins = wanted.certificate.not_valid_before_utc
        if begins.timestamp() > now_s:
            raise InvalidAuthority(f"its certificate is not valid before {begins.isoformat()}")
        if wanted.ends_s <= now_s:
            ended = wanted.certificate.not_valid_after_utc.isoformat()
            raise InvalidAuthority(f"its certificate expired at {ended}")
        return wanted

    async def _write(
        self,
        name: AuthorityName,
        found: list[Authority],
        kept: list[Authority],
        stored: Object | None,
        source: str,
    ) -> None:
        items = [(each.created_s, each.chain_pem, each.key_pem) for each in kept]
        # Until the newest is one of the source wanted, the annotation says where it comes from.
        source = source if kept[-1:] != found[-1:] else source_of(stored)
        secret = authority_secret(name.namespace, name.secret, items, stored, source)
        if stored is None:
            await self._store.create(SECRET, secret)
        else:
            await self._store.replace(SECRET, secret)
        fingerprints = [each.fingerprint[:16] for each in kept]
        _log.info(
            "certificate authorities changed",
            extra={
                "secret": f"{name.namespace}/{name.secret}",
                "authorities": fingerprints,
                "dropped": [
                    each.fingerprint[:16]
                    for each in found
                    if each.fingerprint[:16] not in fingerprints
                ],
            },
        )

    def _plan(self, found: list[Authority], now_s: int, asked_at_s: int) -> CertificatePlan:
        times = [AuthorityTimes(each.fingerprint, each.created_s, each.ends_s) for each in found]
        return plan_certificates(times, now_s=now_s, lives=self.lives, asked_at_s=asked_at_s)


def _after(authorities: list[Authority], now_s: int) -> int:
    """Return a time of creation for a new authority: their order is that of these times."""
    return max([now_s, *(each.created_s + 1 for each in authorities)])
