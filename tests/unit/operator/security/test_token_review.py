"""Reviews of tokens: what is rejected, what is cached and for how long, and what is bounded."""

import asyncio

import pytest
from tidemark_operator.security import token_review
from tidemark_operator.security.rejections import Reason, SenderRejected
from tidemark_operator.security.token_review import ReviewedToken, TokenReviews, read_status
from tidemark_protocol.access_messages import CONTROLLER_AUDIENCE, MAX_TOKEN_BYTES

from tests.unit.operator.security.api_server import HOUR_S, ApiServer, jwt, run, token


async def review(reviews: TokenReviews, of: str, source: str = "10.0.0.1") -> ReviewedToken:
    return await reviews.review(of, CONTROLLER_AUDIENCE, source=source)


async def rejection(reviews: TokenReviews, of: str, source: str = "10.0.0.1") -> SenderRejected:
    with pytest.raises(SenderRejected) as caught:
        await review(reviews, of, source)
    assert of not in str(caught.value)
    return caught.value


def test_a_valid_token_is_its_account_and_pod() -> None:
    async def scenario(server: ApiServer) -> None:
        server.account("default", token(), pod=("default-1", "uid-1"))
        found = await review(server.token_reviews(), token())
        assert found.principal.name == "system:serviceaccount:shop:default"
        assert "system:authenticated" in found.principal.groups
        assert (found.namespace, found.pod_name, found.pod_uid) == ("shop", "default-1", "uid-1")

    run(scenario)


def test_a_token_is_reviewed_again_after_minutes_and_in_the_background_before() -> None:
    async def scenario(server: ApiServer) -> None:
        server.account("default", token())
        reviews = server.token_reviews()
        for _ in range(3):
            await review(reviews, token())
        assert len(server.reviewed) == 1
        server.clock.now_s += token_review.REFRESH_SECONDS
        server.responds.clear()
        await review(reviews, token())  # does not wait
        server.responds.set()
        for _ in range(5):
            await asyncio.sleep(0)
        await review(reviews, token())
        assert len(server.reviewed) == 2

    run(scenario)


def test_a_revoked_token_is_rejected_after_five_minutes() -> None:
    async def scenario(server: ApiServer) -> None:
        server.account("default", token())
        reviews = server.token_reviews()
        await review(reviews, token())
        server.users.clear()
        server.clock.now_s += token_review.FRESH_SECONDS
        assert (await rejection(reviews, token())).reason is Reason.INVALID_TOKEN
        await rejection(reviews, token())

    run(scenario)


def test_without_the_api_server_a_known_token_is_valid_until_it_expires() -> None:
    async def scenario(server: ApiServer) -> None:
        server.account("default", token())
        reviews = server.token_reviews()
        await review(reviews, token())
        server.is_away = True
        server.clock.now_s += HOUR_S - 1
        await review(reviews, token())
        asked = len(server.reviewed)
        for _ in range(100):
            await review(reviews, token())
        assert len(server.reviewed) == asked  # not at each request
        server.clock.now_s += 1
        assert (await rejection(reviews, token())).reason is Reason.NOT_REVIEWED

    run(scenario)


def test_an_api_server_that_hangs_holds_up_no_known_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_review, "KNOWN_WAITS_SECONDS", 0.01)

    async def scenario(server: ApiServer) -> None:
        server.account("default", token())
        reviews = server.token_reviews()
        await review(reviews, token())
        server.responds.clear()
        server.clock.now_s += token_review.FRESH_SECONDS + 1
        await review(reviews, token())
        await reviews.close()

    run(scenario)


def test_unknown_tokens_are_rejected_without_the_api_server() -> None:
    async def scenario(server: ApiServer) -> None:
        server.is_away = True
        rejected = await rejection(server.token_reviews(), token())
        assert (rejected.reason, rejected.status) == (Reason.NOT_REVIEWED, 503)

    run(scenario)


def test_a_rejected_token_is_asked_about_again_after_ten_seconds() -> None:
    async def scenario(server: ApiServer) -> None:
        reviews = server.token_reviews()
        for _ in range(3):
            assert (await rejection(reviews, token())).status == 401
        assert len(server.reviewed) == 1
        server.account("default", token())
        server.clock.now_s += token_review.REJECTED_SECONDS
        await review(reviews, token())

    run(scenario)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (token(audience="kafka"), "for another audience"),
        (jwt(aud="https://kubernetes.default.svc"), "for another audience"),
        (jwt(exp=1), "for another audience"),
        ("abc", "no JSON Web Token"),
        ("a.b.c", "no JSON Web Token"),
        (".".join(["e30", "W10", "e30"]), "no JSON Web Token"),
        ("x." + "[" * 3000 + ".y", "no JSON Web Token"),
        (token("x" * MAX_TOKEN_BYTES), "no JSON Web Token"),
        ("ä.ö.ü", "no JSON Web Token"),
    ],
)
def test_what_is_no_token_for_the_controller_costs_no_call(sent: str, said: str) -> None:
    async def scenario(server: ApiServer) -> None:
        assert said in str(await rejection(server.token_reviews(), sent))
        assert not server.reviewed

    run(scenario)


def test_the_api_server_has_to_confirm_the_audience_and_an_expiry_is_needed() -> None:
    status = {"authenticated": True, "user": {"username": "jane"}}
    for more, sent in (({}, token()), ({"audiences": ["other"]}, token())):
        with pytest.raises(SenderRejected, match="did not confirm the audience"):
            read_status({**status, **more}, sent, CONTROLLER_AUDIENCE)
    confirmed = {**status, "audiences": [CONTROLLER_AUDIENCE]}
    with pytest.raises(SenderRejected, match="no expiry"):
        read_status(confirmed, jwt(aud=CONTROLLER_AUDIENCE), CONTROLLER_AUDIENCE)
    with pytest.raises(SenderRejected, match="not valid"):
        read_status({**confirmed, "authenticated": "true"}, token(), CONTROLLER_AUDIENCE)


def test_reviews_of_one_token_are_one_call_and_outlive_who_asked_first() -> None:
    async def scenario(server: ApiServer) -> None:
        server.account("default", token())
        server.responds.clear()
        reviews = server.token_reviews()
        first, *others = [asyncio.create_task(review(reviews, token())) for _ in range(20)]
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        server.responds.set()
        await asyncio.gather(*others)
        assert len(server.reviewed) == 1

    run(scenario)


def test_calls_are_bounded_in_all_and_for_each_source() -> None:
    async def scenario(server: ApiServer) -> None:
        server.responds.clear()
        reviews = server.token_reviews(max_concurrent=2)
        asking = [
            asyncio.create_task(rejection(reviews, token(str(number)), "10.0.0.66"))
            for number in range(token_review.MAX_PER_SOURCE)
        ]
        await asyncio.sleep(0)
        assert "too many tokens" in str(await rejection(reviews, token("one more"), "10.0.0.66"))
        server.account("default", token("of another"))
        other = asyncio.create_task(review(reviews, token("of another"), "10.0.0.2"))
        await asyncio.sleep(0)
        server.responds.set()
        await asyncio.gather(*asking, other)
        assert server.most_at_once == 2
        await rejection(reviews, token("later"), "10.0.0.66")  # its reviews have ended

    run(scenario)


def test_caches_are_bounded_and_invalid_tokens_displace_no_valid_one() -> None:
    async def scenario(server: ApiServer) -> None:
        reviews = server.token_reviews(max_entries=3)
        server.account("default", token("valid"))
        await review(reviews, token("valid"))
        for number in range(10):
            await rejection(reviews, token(str(number)))
        asked = len(server.reviewed)
        await review(reviews, token("valid"))
        await rejection(reviews, token("9"))
        assert len(server.reviewed) == asked
        await rejection(reviews, token("0"))
        assert len(server.reviewed) == asked + 1
        for number in range(10, 14):
            server.account("default", token(str(number)))
            await review(reviews, token(str(number)))
        asked = len(server.reviewed)
        await review(reviews, token("valid"))
        assert len(server.reviewed) == asked + 1

    run(scenario)


def test_a_pod_that_is_gone_is_reviewed_again() -> None:
    async def scenario(server: ApiServer) -> None:
        server.account("default", token(), pod=("default-1", "uid-1"))
        reviews = server.token_reviews()
        await review(reviews, token())
        server.users.clear()
        reviews.forget_pod("uid-2")
        await review(reviews, token())
        reviews.forget_pod("uid-1")
        await rejection(reviews, token())

    run(scenario)
