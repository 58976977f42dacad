"""Keep what the controller said about accesses, within bounds of age and number. No I/O.

A review counts for STALE_MS from the moment of the controller's review. From ASK_AGAIN_MS on it is
due: it is asked for again before it is stale, so that no request of an active client waits. While
the controller or the API server is away, reviews count for GRACE_MS. What is not known is rejected.

A review of an empty name is about all resources of its kind. RBAC only adds, so that if it is
allowed then so is each name.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidemark_protocol.access_messages import Access, Principal, ResourceKind, Verb

ASK_AGAIN_MS = 20_000
STALE_MS = 30_000
GRACE_MS = 3_600_000
RETRY_MS = 1_000  # between questions while there are no responses
MAX_ENTRIES = 10_000


class Review(NamedTuple):
    is_allowed: bool
    reviewed_ms: int


def of_every(access: Access) -> Access:
    """Return the same access to all resources of the kind."""
    return Access(access.verb, access.kind)


class AccessCache:
    def __init__(self, *, most_entries: int = MAX_ENTRIES) -> None:
        self._reviews: dict[Principal, dict[Access, Review]] = {}  # longest unreviewed first
        self._count = 0
        self._most_entries = most_entries
        self._failed_ms: int | None = None  # of the last question, if it had no response

    def __len__(self) -> int:
        return self._count

    @property
    def is_away(self) -> bool:
        """Return whether the last question had no response."""
        return self._failed_ms is not None

    def known(self, principal: Principal, access: Access, now_ms: int) -> bool | None:
        """Return whether an access is allowed, or None if the controller has to be asked first."""
        review = self._find(principal, access)
        if review is None:
            return None  # guard: unknown-access-is-none (S34)
        # guard: review-is-stale-in-time (S34)
        limit_ms = STALE_MS if self._failed_ms is None else GRACE_MS
        return None if now_ms - review.reviewed_ms >= limit_ms else review.is_allowed

    def recent(self, principal: Principal, access: Access, now_ms: int) -> bool | None:
        """Return what is known of an access and not due, or None: the lookup of each request."""
        review = self._find(principal, access)
        if review is None or now_ms - review.reviewed_ms >= ASK_AGAIN_MS:
            return None
        return review.is_allowed

    def is_due(self, principal: Principal, access: Access, now_ms: int) -> bool:
        """Return whether a known access is to be asked for again, while it is still used."""
        review = self._find(principal, access)
        if review is None or now_ms - review.reviewed_ms < ASK_AGAIN_MS:
            return False
        return self._failed_ms is None or now_ms - self._failed_ms >= RETRY_MS

    def fresh_ms(self, principal: Principal, access: Access, now_ms: int) -> int:
        """Return for how long a known access is used without a new review."""
        review = self._find(principal, access)
        return 0 if review is None else max(0, review.reviewed_ms + STALE_MS - now_ms)

    def allowed_names(
        self, principal: Principal, verb: Verb, kind: ResourceKind, now_ms: int
    ) -> frozenset[str]:
        """Return the names that are known to be allowed."""
        return frozenset(
            access.name
            for access in self._reviews.get(principal, ())
            if access.verb is verb
            and access.kind is kind
            and self.known(principal, access, now_ms) is True
        )

    def questions(
        self, principal: Principal, accesses: Iterable[Access], now_ms: int
    ) -> tuple[Access, ...]:
        """Return what to ask for these accesses: those to all resources of a kind come first."""
        named = dict.fromkeys(accesses)
        every = dict.fromkeys(map(of_every, named))
        reviews = self._reviews.get(principal, {})

        def is_settled(access: Access) -> bool:
            found = reviews.get(access)
            return found is not None and now_ms - found.reviewed_ms < ASK_AGAIN_MS

        asked = [access for access in every if not is_settled(access)]
        return (*asked, *(access for access in named if access not in every))

    def record(
        self,
        principal: Principal,
        accesses: Sequence[Access],
        allowed: Sequence[bool],
        reviewed_ms: int,
    ) -> None:
        """Record a response of the controller."""
        self._failed_ms = None
        reviews = self._reviews.pop(principal, {})
        self._count -= len(reviews)
        for access, is_allowed in zip(accesses, allowed, strict=True):
            reviews.pop(access, None)
            reviews[access] = Review(is_allowed, reviewed_ms)
        while len(reviews) > max(1, self._most_entries // 2):  # the others' stay
            del reviews[next(iter(reviews))]
        self._reviews[principal] = reviews
        self._count += len(reviews)
        while self._count > self._most_entries:
            oldest = next(iter(self._reviews))
            own = self._reviews[oldest]
            del own[next(iter(own))]
            self._count -= 1
            if not own:
                del self._reviews[oldest]

    def record_failure(self, now_ms: int) -> None:
        """Record that a question had no response."""
        self._failed_ms = now_ms

    def _find(self, principal: Principal, access: Access) -> Review | None:
        reviews = self._reviews.get(principal)
        if reviews is None:
            return None
        found = reviews.get(access)
        if found is not None and found.is_allowed:
            return found
        every = reviews.get(of_every(access)) if access.name else None
        if every is not None and every.is_allowed:
            return every
        return found
