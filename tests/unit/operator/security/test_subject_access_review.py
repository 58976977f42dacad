"""Reviews are cached, bounded in number at a time, and served with their age without Kubernetes."""

import asyncio
from typing import cast

import pytest
from tidemark_operator.api.kinds import LOCAL_SUBJECT_ACCESS_REVIEW, Object, ResourceKind
from tidemark_operator.security import subject_access_review as module
from tidemark_operator.security.subject_access_review import (
    ReviewUnavailable,
    SubjectAccessReviews,
    kubernetes_review,
    review_object,
)
from tidemark_operator.store.object_store import Forbidden, ObjectStore
from tidemark_protocol.access_messages import Access, Principal, Verb
from tidemark_protocol.access_messages import ResourceKind as AccessKind

ALICE = Principal("system:serviceaccount:shop:orders", ("system:authenticated",))
ORDERS = Access(Verb.PRODUCE, AccessKind.TOPIC, "orders")
EVERY = Access(Verb.PRODUCE, AccessKind.TOPIC)


class Reviewer:
    def __init__(self, *allowed: Access) -> None:
        self.allowed = set(allowed)
        self.asked: list[Access] = []
        self.at_once = self.most_at_once = 0
        self.is_away = False
        self.now_ms = 0

    async def review(self, principal: Principal, access: Access, namespace: str) -> bool:
        self.asked.append(access)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if self.is_away:
            raise ReviewUnavailable("away")
        return access in self.allowed

    def reviews(self) -> SubjectAccessReviews:
        return SubjectAccessReviews(self.review, now_ms=lambda: self.now_ms)


def test_a_result_is_returned_again_with_its_age_and_then_reviewed_again() -> None:
    async def run() -> None:
        reviewer = Reviewer(ORDERS)
        reviews = reviewer.reviews()
        assert await reviews.allowed(ALICE, ORDERS, "shop") == (True, 0)
        reviewer.now_ms += 19_999
        reviewer.allowed.clear()
        assert await reviews.allowed(ALICE, ORDERS, "shop") == (True, 19_999)
        assert await reviews.allowed(ALICE, ORDERS, "other") == (False, 0)
        reviewer.now_ms += 1
        assert await reviews.allowed(ALICE, ORDERS, "shop") == (False, 0)

    asyncio.run(run())


def test_without_kubernetes_a_result_counts_until_it_is_stale() -> None:
    async def run() -> None:
        reviewer = Reviewer(ORDERS)
        reviews = reviewer.reviews()
        await reviews.allowed(ALICE, ORDERS, "shop")
        reviewer.is_away = True
        reviewer.now_ms += 29_999
        assert await reviews.allowed(ALICE, ORDERS, "shop") == (True, 29_999)
        reviewer.now_ms += 1
        with pytest.raises(ReviewUnavailable):
            await reviews.allowed(ALICE, ORDERS, "shop")
        with pytest.raises(ReviewUnavailable, match="away"):
            await reviews.all_of(ALICE, (EVERY, ORDERS), "shop")

    asyncio.run(run())


def test_an_access_to_all_needs_no_review_of_names() -> None:
    async def run() -> None:
        reviewer = Reviewer(EVERY)
        names = tuple(Access(Verb.PRODUCE, AccessKind.TOPIC, f"t{at}") for at in range(100))
        allowed, age_ms = await reviewer.reviews().all_of(ALICE, (EVERY, *names), "shop")
        assert (allowed, age_ms) == ((True,) * 101, 0)
        assert reviewer.asked == [EVERY]

    asyncio.run(run())


def test_a_batch_is_answered_in_order_with_few_reviews_at_a_time() -> None:
    async def run() -> None:
        names = tuple(Access(Verb.PRODUCE, AccessKind.TOPIC, f"t{at}") for at in range(200))
        reviewer = Reviewer(*names[::2])
        allowed, _ = await reviewer.reviews().all_of(ALICE, names, "shop")
        assert allowed == (True, False) * 100
        assert reviewer.most_at_once <= module.MAX_REVIEWS_AT_ONCE
        equal = (ORDERS,) * 50
        assert await reviewer.reviews().all_of(ALICE, equal, "shop") == ((False,) * 50, 0)

    asyncio.run(run())


def test_results_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 10)

    async def run() -> None:
        reviews = Reviewer().reviews()
        for at in range(100):
            await reviews.allowed(ALICE, Access(Verb.PRODUCE, AccessKind.TOPIC, f"t{at}"), "shop")
        assert len(reviews) == 10

    asyncio.run(run())


class Store:
    def __init__(self, status: Object | None) -> None:
        self.status = status
        self.created: list[tuple[ResourceKind, Object]] = []

    async def create(self, kind: ResourceKind, item: Object) -> Object:
        self.created.append((kind, item))
        if self.status is None:
            raise Forbidden("cannot create localsubjectaccessreviews")
        return item | {"status": self.status}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"allowed": True}, True),
        ({"allowed": False}, False),
        ({"allowed": True, "denied": True}, False),
        ({}, False),
    ],
)
def test_kubernetes_is_asked_in_the_namespace_of_the_pool(status: Object, expected: bool) -> None:
    store = Store(status)
    review = kubernetes_review(cast(ObjectStore, store))
    assert asyncio.run(review(ALICE, ORDERS, "shop")) is expected
    ((kind, item),) = store.created
    assert kind is LOCAL_SUBJECT_ACCESS_REVIEW
    assert item == review_object(ALICE, ORDERS, "shop")
    assert item["metadata"] == {"namespace": "shop"}
    assert item["spec"] == {
        "user": ALICE.name,
        "groups": ["system:authenticated"],
        "resourceAttributes": {
            "namespace": "shop",
            "group": "tidemark.dev",
            "resource": "topics",
            "verb": "produce",
            "name": "orders",
        },
    }


def test_a_failed_review_is_unavailable() -> None:
    review = kubernetes_review(cast(ObjectStore, Store(None)))
    with pytest.raises(ReviewUnavailable, match="localsubjectaccessreviews"):
        asyncio.run(review(ALICE, ORDERS, "shop"))
