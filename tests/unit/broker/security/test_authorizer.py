"""How a broker asks what clients may do: once, in batches, bounded, and what it does without."""

import asyncio
import logging

import pytest
from tidemark_broker.security import authorizer as module
from tidemark_broker.security.access_log import LINES_OF_A_PERIOD, PERIOD_MS, AccessLog, Origin
from tidemark_broker.security.authorizer import Authorizer
from tidemark_protocol.access_messages import (
    MAX_ACCESSES,
    Access,
    Principal,
    ResourceKind,
    ReviewAccessResponse,
    Verb,
)
from tidemark_protocol.error_codes import ErrorCode

from tests.support.access import ALICE, Reviews

ORDERS = Access(Verb.PRODUCE, ResourceKind.TOPIC, "orders")
EVERY = Access(Verb.PRODUCE, ResourceKind.TOPIC)
RULE = "{resources: [topics], resourceNames: [orders], verbs: [produce]}"


class Time:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def granted(*rules: str) -> tuple[Reviews, Time, Authorizer]:
    reviews, time = Reviews(), Time()
    reviews.grant(*rules)
    return reviews, time, Authorizer(reviews.review, pool="shop/default", clock=time)


def test_concurrent_equal_questions_share_one_request() -> None:
    async def run() -> None:
        reviews, _, authorizer = granted(RULE)
        answers = await asyncio.gather(*(authorizer.is_allowed(ALICE, ORDERS) for _ in range(50)))
        assert all(answers)
        assert reviews.asked == [(EVERY, ORDERS)]

    asyncio.run(run())


def test_an_active_client_never_waits_for_a_review_again() -> None:
    async def run() -> None:
        reviews, time, authorizer = granted(RULE)
        assert await authorizer.is_allowed(ALICE, ORDERS)
        for _ in range(60):
            time.now_ms += 5_000
            assert authorizer.known(ALICE, ORDERS) is True
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert 10 <= len(reviews.asked) <= 20
        await authorizer.close()

    asyncio.run(run())


def test_a_revoked_access_is_denied_after_thirty_seconds() -> None:
    async def run() -> None:
        reviews, time, authorizer = granted(RULE)
        assert await authorizer.is_allowed(ALICE, ORDERS)
        reviews.grant()
        time.now_ms += 29_999
        assert authorizer.known(ALICE, ORDERS) is True
        await authorizer.close()  # the question that this began
        time.now_ms += 1
        assert authorizer.known(ALICE, ORDERS) is None
        assert not await authorizer.is_allowed(ALICE, ORDERS)

    asyncio.run(run())


def test_the_age_of_the_controllers_review_counts() -> None:
    async def run() -> None:
        time = Time()

        async def old(principal: Principal, accesses: tuple[Access, ...]) -> ReviewAccessResponse:
            allowed = (True,) * len(accesses)
            return ReviewAccessResponse(ErrorCode.NONE, allowed=allowed, age_ms=19_000)

        authorizer = Authorizer(old, clock=time)
        assert await authorizer.is_allowed(ALICE, ORDERS)
        time.now_ms += 11_000
        assert authorizer.known(ALICE, ORDERS) is None

    asyncio.run(run())


def test_known_clients_go_on_without_a_controller_and_unknown_ones_are_denied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "WAIT_MS", 0)

    async def run() -> None:
        reviews, time, authorizer = granted(RULE)
        assert await authorizer.is_allowed(ALICE, ORDERS)
        reviews.is_away = True
        time.now_ms += 31_000
        assert await authorizer.is_allowed(ALICE, ORDERS)
        for _ in range(100):
            time.now_ms += 30_000
            assert authorizer.known(ALICE, ORDERS) is True
            await asyncio.sleep(0)
        assert not await authorizer.is_allowed(Principal("bob"), ORDERS)
        time.now_ms += 3_600_000
        assert not await authorizer.is_allowed(ALICE, ORDERS)
        reviews.is_away = False
        assert await authorizer.is_allowed(ALICE, ORDERS)

    asyncio.run(run())


def test_questions_are_sent_in_bounded_requests_and_bounded_in_number() -> None:
    async def run() -> None:
        reviews, _, authorizer = granted()
        names = [Access(Verb.DESCRIBE, ResourceKind.TOPIC, f"t{at}") for at in range(5_000)]
        await authorizer.ensure(ALICE, names)
        assert reviews.asked[0] == (Access(Verb.DESCRIBE, ResourceKind.TOPIC),)
        assert sum(map(len, reviews.asked[1:])) == module.MAX_ASKED_OF_ONE
        assert max(map(len, reviews.asked)) <= MAX_ACCESSES
        assert authorizer.known(ALICE, names[0]) is False
        assert authorizer.known(ALICE, names[-1]) is None  # rejected

    asyncio.run(run())


def test_one_rule_for_all_topics_is_one_question() -> None:
    async def run() -> None:
        reviews, _, authorizer = granted("{resources: [topics], verbs: [produce]}")
        assert await authorizer.is_allowed(ALICE, ORDERS)
        for at in range(100):
            access = Access(Verb.PRODUCE, ResourceKind.TOPIC, f"t{at}")
            assert authorizer.known(ALICE, access) is True
        assert len(reviews.asked) == 1
        other = [Access(Verb.DESCRIBE, ResourceKind.TOPIC, f"t{at}") for at in range(10_000)]
        reviews.grant("{resources: [topics], verbs: [describe]}")
        await authorizer.ensure(ALICE, other)
        assert reviews.asked[1:] == [(Access(Verb.DESCRIBE, ResourceKind.TOPIC),)]

    asyncio.run(run())


def test_denials_are_logged_once_each_and_bounded_by_principal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    time = Time()
    log = AccessLog(time)
    caplog.set_level(logging.INFO)
    origin = Origin(ALICE, "Produce", "external", "10.0.0.7", "42")
    for _ in range(1_000):
        log.denied(origin, ORDERS)
    assert len(caplog.records) == LINES_OF_A_PERIOD
    line = vars(caplog.records[0])
    assert (line["principal"], line["verb"], line["resource"]) == ("alice", "produce", "topics")
    assert (line["resource_name"], line["address"]) == ("orders", "10.0.0.7")
    assert (line["listener"], line["correlation"]) == ("external", "42")
    time.now_ms += PERIOD_MS
    log.denied(origin, ORDERS)
    assert vars(caplog.records[-1])["suppressed"] == 990
    log.denied(Origin(Principal("bob"), "Produce", "", "", "1"), ORDERS)
    assert len(caplog.records) == LINES_OF_A_PERIOD + 2
