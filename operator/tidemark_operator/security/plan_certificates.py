"""Decide which certificate authority issues, which are trusted, and which are created or dropped.

A roll-over has three steps, each as long as a broker's certificate lives: within that time every
broker that still has a valid certificate has asked for another, and was told which authorities to
trust.

1. The new authority is trusted; the old one issues.
2. The new one issues; certificates of the old one are still valid.
3. The old one is dropped.

The steps follow from the times in the certificates alone, so an operator that starts in the middle
of a roll-over goes on with it, and two operators agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

DAY_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class Lives:
    authority_s: int = 5 * 365 * DAY_S
    # Renewed after a third: brokers live on for two days without an operator, and a stolen key is
    # of no use after three.
    certificate_s: int = 3 * DAY_S

    @property
    def authority_renewed_s(self) -> int:
        """Return how long before its end an authority is followed by another."""
        return self.authority_s // 5


@dataclass(frozen=True, slots=True)
class AuthorityTimes:
    fingerprint: str
    created_s: int
    ends_s: int


@dataclass(frozen=True, slots=True)
class CertificatePlan:
    """The state now, and what is due: `creates` a new authority, `dropped` ones to remove."""

    issuer: str  # fingerprint; "" while there is no authority
    trusted: tuple[str, ...]  # without the dropped ones
    creates: bool
    dropped: tuple[str, ...]


def plan_certificates(
    authorities: Sequence[AuthorityTimes], *, now_s: int, lives: Lives, asked_at_s: int = 0
) -> CertificatePlan:
    """Plan; `asked_at_s` asks for an authority that is younger than that moment."""
    by_age = sorted(authorities, key=lambda each: (each.created_s, each.fingerprint))
    valid = [each for each in by_age if each.ends_s > now_s]
    if not valid:
        return CertificatePlan("", (), True, tuple(each.fingerprint for each in by_age))
    issuing = [
        index for index, each in enumerate(valid) if index == 0 or _issues(each, now_s, lives)
    ]
    issuer = issuing[-1]
    first_trusted = 0
    for index in issuing[1:]:
        if now_s >= valid[index].created_s + 2 * lives.certificate_s:
            first_trusted = index
    kept = valid[first_trusted:]
    newest = valid[-1]
    is_rolling = issuer != len(valid) - 1  # one roll-over at a time
    is_due = now_s >= newest.ends_s - lives.authority_renewed_s or newest.created_s < asked_at_s
    return CertificatePlan(
        issuer=valid[issuer].fingerprint,
        trusted=tuple(each.fingerprint for each in kept),
        creates=is_due and not is_rolling,
        dropped=tuple(each.fingerprint for each in by_age if each not in kept),
    )


class Adoption(Enum):
    """What to do with the authority that a user wants."""

    KEEP = "keep"  # it is the newest
    ADD = "add"  # as the newest: it issues a certificate's life later
    RETURN = "return"  # it issues still: those that were to follow it are dropped
    WAIT = "wait"  # for the end of a roll-over


def plan_adoption(
    authorities: Sequence[AuthorityTimes], wanted: str, *, now_s: int, lives: Lives
) -> Adoption:
    """Decide how the authority with this fingerprint becomes the one that issues."""
    valid = sorted(
        (each for each in authorities if each.ends_s > now_s),
        key=lambda each: (each.created_s, each.fingerprint),
    )
    if not valid:
        return Adoption.ADD
    newest = valid[-1].fingerprint
    if newest == wanted:
        return Adoption.KEEP
    issuer = plan_certificates(valid, now_s=now_s, lives=lives).issuer
    if newest == issuer:
        return Adoption.ADD
    return Adoption.RETURN if issuer == wanted else Adoption.WAIT


def _issues(authority: AuthorityTimes, now_s: int, lives: Lives) -> bool:
    return now_s >= authority.created_s + lives.certificate_s
