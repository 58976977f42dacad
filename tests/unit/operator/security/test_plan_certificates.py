"""Steps of a roll-over of certificate authorities, and what every step guarantees."""

from hypothesis import given
from hypothesis import strategies as st
from tidemark_operator.security.plan_certificates import (
    AuthorityTimes,
    CertificatePlan,
    Lives,
    plan_certificates,
)

LIVES = Lives(authority_s=1000, certificate_s=10)
OLD = AuthorityTimes("old", 0, 1000)
NEW = AuthorityTimes("new", 500, 1500)


def plan(*authorities: AuthorityTimes, now_s: int, asked_at_s: int = 0) -> CertificatePlan:
    return plan_certificates(authorities, now_s=now_s, lives=LIVES, asked_at_s=asked_at_s)


def test_first_authority_is_created_and_issues_immediately() -> None:
    assert plan(now_s=0) == CertificatePlan("", (), True, ())
    assert plan(OLD, now_s=0) == CertificatePlan("old", ("old",), False, ())


def test_authority_is_followed_before_it_ends() -> None:
    assert not plan(OLD, now_s=799).creates
    assert plan(OLD, now_s=800).creates


def test_new_authority_is_created_when_asked_for() -> None:
    assert plan(OLD, now_s=500, asked_at_s=400).creates
    assert not plan(OLD, NEW, now_s=600, asked_at_s=400).creates, "it is younger than that"


def test_roll_over_has_three_steps() -> None:
    trust = CertificatePlan("old", ("old", "new"), False, ())
    issue = CertificatePlan("new", ("old", "new"), False, ())
    drop = CertificatePlan("new", ("new",), False, ("old",))
    for now_s, expected in ((500, trust), (509, trust), (510, issue), (519, issue), (520, drop)):
        assert plan(OLD, NEW, now_s=now_s) == expected, now_s


def test_second_roll_over_waits_for_the_first() -> None:
    assert not plan(OLD, NEW, now_s=505, asked_at_s=504).creates
    assert plan(OLD, NEW, now_s=510, asked_at_s=504).creates


def test_new_authority_issues_at_once_when_the_old_one_has_ended() -> None:
    late = AuthorityTimes("late", 999, 2000)
    assert plan(OLD, late, now_s=1000) == CertificatePlan("late", ("late",), False, ("old",))


@given(
    created=st.lists(st.integers(0, 3000), min_size=1, max_size=5, unique=True),
    now_s=st.integers(0, 4000),
)
def test_certificates_of_the_last_life_are_trusted(created: list[int], now_s: int) -> None:
    """Whatever issued a certificate that is still valid is trusted still."""
    authorities = [AuthorityTimes(str(each), each, each + 1000) for each in created]
    known = [each for each in authorities if each.created_s <= now_s]
    trusted = plan(*known, now_s=now_s).trusted
    for before_s in range(max(0, now_s - LIVES.certificate_s + 1), now_s + 1):
        then = [each for each in authorities if each.created_s <= before_s]
        issuer = plan(*then, now_s=before_s).issuer
        ended = issuer and int(issuer) + 1000 <= now_s
        assert issuer in ("", *trusted) or ended


@given(
    created=st.lists(st.integers(0, 3000), min_size=1, max_size=5, unique=True),
    now_s=st.integers(0, 4000),
)
def test_issuer_is_trusted_by_whoever_asked_within_the_last_life(
    created: list[int], now_s: int
) -> None:
    """A broker that asked for its certificate up to one life ago was told of the issuer."""
    authorities = [AuthorityTimes(str(each), each, each + 1000) for each in created]
    issuer = plan(*(each for each in authorities if each.created_s <= now_s), now_s=now_s).issuer
    if not issuer:
        return
    before_s = now_s - LIVES.certificate_s
    then = [each for each in authorities if each.created_s <= before_s]
    told = plan(*then, now_s=before_s).trusted
    assert issuer in told or not told
