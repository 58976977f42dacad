"""Review accesses for brokers, and keep the results for a short time.

A result is returned for ASK_AGAIN_MS without another review, and for STALE_MS while there are none.
A review of an empty name is about all resources of the kind: RBAC only adds, so that if it is
allowed then no review of a name is needed. Few reviews run at a time.

On Kubernetes a review is a LocalSubjectAccessReview, for which the operator needs a permission in
the pool's namespace only.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tidemark_protocol.access_messages import Access, Principal

from tidemark_operator.api.kinds import LOCAL_SUBJECT_ACCESS_REVIEW, Object
from tidemark_operator.store.object_store import ObjectStore, StoreError

ASK_AGAIN_MS = 20_000
STALE_MS = 30_000
MAX_ENTRIES = 10_000
MAX_REVIEWS_AT_ONCE = 16
API_GROUP = "tidemark.dev"

Key = tuple[Principal, Access, str]
Review = Callable[[Principal, Access, str], Awaitable[bool]]  # raises ReviewUnavailable


class ReviewUnavailable(Exception):
    """An error: an access could not be reviewed; the text says why."""


class SubjectAccessReviews:
    def __init__(self, review: Review, *, now_ms: Callable[[], int]) -> None:
        self._review = review
        self._now_ms = now_ms
        self._results: dict[Key, tuple[bool, int]] = {}  # longest reviewed first
        self._at_once = asyncio.Semaphore(MAX_REVIEWS_AT_ONCE)

    def __len__(self) -> int:
        return len(self._results)

    async def allowed(
        self, principal: Principal, access: Access, namespace: str
    ) -> tuple[bool, int]:
        """Return whether an access is allowed, and the age of that result in milliseconds.

        Raises ReviewUnavailable.
        """
        key = (principal, access, namespace)
        found = self._recent(key, ASK_AGAIN_MS)
        if found is not None:
            return found
        async with self._at_once:
            found = self._recent(key, ASK_AGAIN_MS)  # of a request that was earlier
            if found is not None:
                return found
            began_ms = self._now_ms()
            try:
                is_allowed = await self._review(principal, access, namespace)
            except ReviewUnavailable:
                found = self._recent(key, STALE_MS)
                if found is None:
                    raise
                return found
        self._record(key, is_allowed, began_ms)
        return is_allowed, self._now_ms() - began_ms

    async def all_of(
        self, principal: Principal, accesses: Sequence[Access], namespace: str
    ) -> tuple[tuple[bool, ...], int]:
        """Return whether each access is allowed, and the age of the oldest result.

        Raises ReviewUnavailable.
        """
        every = {access for access in accesses if not access.name}
        results = await self._each(principal, every, namespace)
        named = {
            access
            for access in accesses
            if access.name and not results.get(Access(access.verb, access.kind), (False, 0))[0]
        }
        results |= await self._each(principal, named, namespace)
        found = [
            results.get(access) or results[Access(access.verb, access.kind)] for access in accesses
        ]
        return tuple(is_allowed for is_allowed, _ in found), max(
            (age_ms for _, age_ms in found), default=0
        )

    # ---- inside

    async def _each(
        self, principal: Principal, accesses: set[Access], namespace: str
    ) -> dict[Access, tuple[bool, int]]:
        in_order = sorted(accesses, key=lambda access: (access.verb, access.kind, access.name))
        failures: tuple[BaseException, ...] = ()
        try:
            async with asyncio.TaskGroup() as tasks:
                reviews = [
                    tasks.create_task(self.allowed(principal, access, namespace))
                    for access in in_order
                ]
        except* ReviewUnavailable as errors:  # the others are not tried
            failures = errors.exceptions
        if failures:
            raise ReviewUnavailable(str(failures[0]))
        return dict(zip(in_order, (review.result() for review in reviews), strict=True))

    def _recent(self, key: Key, most_ms: int) -> tuple[bool, int] | None:
        found = self._results.get(key)
        if found is None:
            return None
        age_ms = self._now_ms() - found[1]
        return (found[0], age_ms) if age_ms < most_ms else None

    def _record(self, key: Key, is_allowed: bool, reviewed_ms: int) -> None:
        self._results.pop(key, None)
        while len(self._results) >= MAX_ENTRIES:
            del self._results[next(iter(self._results))]
        self._results[key] = (is_allowed, reviewed_ms)


def kubernetes_review(store: ObjectStore) -> Review:
    """Return the review by the API server."""

    async def review(principal: Principal, access: Access, namespace: str) -> bool:
        item = review_object(principal, access, namespace)
        try:
            reviewed = await store.create(LOCAL_SUBJECT_ACCESS_REVIEW, item)
        except StoreError as error:
            raise ReviewUnavailable(f"access not reviewed: {error}") from error
        status = reviewed.get("status") or {}
        return status.get("allowed") is True and status.get("denied") is not True

    return review


def review_object(principal: Principal, access: Access, namespace: str) -> Object:
    attributes: Object = {
        "namespace": namespace,
        "group": API_GROUP,
        "resource": access.kind.value,
        "verb": access.verb.value,
    }
    if access.name:
        attributes["name"] = access.name
    return {
        "apiVersion": LOCAL_SUBJECT_ACCESS_REVIEW.api_version,
        "kind": LOCAL_SUBJECT_ACCESS_REVIEW.kind,
        "metadata": {"namespace": namespace},
        "spec": {
            "user": principal.name,
            "groups": list(principal.groups),
            "resourceAttributes": attributes,
        },
    }
