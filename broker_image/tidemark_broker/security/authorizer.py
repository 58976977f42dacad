"""Ask the controller what principals may do, and remember it (`AccessCache`).

Concurrent equal questions share one request, and what one request lacks is asked for at once. A
question is sent again until WAIT_MS have passed; without a response what is known is used for its
grace time, and the rest is rejected.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from tidemark_protocol.access_messages import (
    MAX_ACCESSES,
    Access,
    Principal,
    ResourceKind,
    ReviewAccessResponse,
    Verb,
)
from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.clock import Clock, monotonic_ms
from tidemark_broker.security.access_cache import RETRY_MS, AccessCache, of_every
from tidemark_broker.security.access_log import AccessLog

Review = Callable[[Principal, tuple[Access, ...]], Awaitable[ReviewAccessResponse]]

WAIT_MS = 5_000
MANY = 16  # accesses
MAX_ASKED = 4_000  # accesses that are asked for at a time
MAX_ASKED_OF_ONE = 2_000  # of one principal

_log = logging.getLogger(__name__)


async def _no_review(principal: Principal, accesses: tuple[Access, ...]) -> ReviewAccessResponse:
    return ReviewAccessResponse(ErrorCode.UNKNOWN_SERVER_ERROR)


async def _ended(tasks: set[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks)


class Authorizer:
    def __init__(
        self,
        review: Review = _no_review,
        *,
        pool: str = "",
        clock: Clock = monotonic_ms,
    ) -> None:
        self.pool = pool
        self.log = AccessLog(clock)
        self._review = review
        self._clock = clock
        self._cache = AccessCache()
        self._asking: dict[tuple[Principal, Access], asyncio.Task[None]] = {}
        self._asked_of: dict[Principal, int] = {}

    @property
    def pool_name(self) -> str:
        """Return the name of the BrokerPool object."""
        return self.pool.rpartition("/")[2]

    @property
    def namespace(self) -> str:
        return self.pool.rpartition("/")[0]

    def known(self, principal: Principal, access: Access) -> bool | None:
        """Return whether an access is allowed, or None before `ensure`."""
        now_ms = self._clock()
        recent = self._cache.recent(principal, access, now_ms)
        if recent is not None:
            return recent
        known = self._cache.known(principal, access, now_ms)
        if known is not None and self._cache.is_due(principal, access, now_ms):
            self._ask(principal, (access,))
        return known

    def allowed_names(self, principal: Principal, verb: Verb, kind: ResourceKind) -> frozenset[str]:
        """Return the names that are known to be allowed."""
        return self._cache.allowed_names(principal, verb, kind, self._clock())

    def fresh_ms(self, principal: Principal, access: Access) -> int:
        """Return for how long `known` may be relied on; while the controller is away, a second."""
        return max(RETRY_MS, self._cache.fresh_ms(principal, access, self._clock()))

    async def ensure(self, principal: Principal, accesses: Iterable[Access]) -> None:
        """Ask for accesses; after it `known` returns None for what is to be rejected.

        Many of them are asked for only if the access to all of their kind is not allowed.
        """
        unknown = tuple(accesses)
        if len(unknown) > MANY:
            await _ended(self._ask(principal, map(of_every, unknown)))
            unknown = tuple(each for each in unknown if self.known(principal, each) is None)
        await _ended(self._ask(principal, unknown))

    async def is_allowed(self, principal: Principal, access: Access) -> bool:
        known = self.known(principal, access)
        if known is None:
            await self.ensure(principal, (access,))
            known = self.known(principal, access)
        return known is True

    async def close(self) -> None:
        tasks = set(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- inside

    def _ask(self, principal: Principal, accesses: Iterable[Access]) -> set[asyncio.Task[None]]:
        """Return the tasks that ask for these accesses, new ones and those of others."""
        tasks: set[asyncio.Task[None]] = set()
        news: list[Access] = []
        for access in self._cache.questions(principal, accesses, self._clock()):
            task = self._asking.get((principal, access))
            if task is None:
                news.append(access)
            else:
                tasks.add(task)
        room = min(
            MAX_ASKED - len(self._asking), MAX_ASKED_OF_ONE - self._asked_of.get(principal, 0)
        )
        del news[max(0, room) :]  # rejected, as what is not known
        for first in range(0, len(news), MAX_ACCESSES):
            chunk = tuple(news[first : first + MAX_ACCESSES])
            task = asyncio.get_running_loop().create_task(
                self._reviewed(principal, chunk), name="review of accesses"
            )
            self._asking.update(((principal, access), task) for access in chunk)
            self._asked_of[principal] = self._asked_of.get(principal, 0) + len(chunk)
            tasks.add(task)
        return tasks

    async def _reviewed(self, principal: Principal, accesses: tuple[Access, ...]) -> None:
        end_ms = self._clock() + WAIT_MS
        try:
            while not await self._review_once(principal, accesses):
                now_ms = self._clock()
                is_known = all(
                    self._cache.known(principal, access, now_ms) is not None for access in accesses
                )
                if is_known or now_ms + RETRY_MS > end_ms:
                    return
                await asyncio.sleep(RETRY_MS / 1000)
        finally:
            for access in accesses:
                del self._asking[principal, access]
            self._asked_of[principal] -= len(accesses)
            if not self._asked_of[principal]:
                del self._asked_of[principal]

    async def _review_once(self, principal: Principal, accesses: tuple[Access, ...]) -> bool:
        sent_ms = self._clock()
        response = await self._review(principal, accesses)
        if response.error is not ErrorCode.NONE or len(response.allowed) != len(accesses):
            if not self._cache.is_away:
                reason = f"{response.error.name}: {response.message}"
                _log.warning("accesses not reviewed", extra={"reason": reason})
            self._cache.record_failure(self._clock())
            return False
        # From the sending on: the review was not earlier than its age before that.
        reviewed_ms = sent_ms - max(0, response.age_ms)
        self._cache.record(principal, accesses, response.allowed, reviewed_ms)
        return True
