"""Ask the API server who may get or alter which BrokerPools, for people at the operator (0170).

Brokers' questions about clients are others: of many names at a time, and with an age.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from tidemark_protocol.access_messages import Principal

from tidemark_operator.api.kinds import BROKER_POOL, Object
from tidemark_operator.security.rejections import Reason, SenderRejected
from tidemark_operator.security.token_review import RETRY
from tidemark_operator.store.object_store import StoreError

log = logging.getLogger(__name__)

FRESH_SECONDS = 30.0  # the bound on staleness
REVIEW_SECONDS = 3.0
MAX_ENTRIES = 10_000
MAX_CONCURRENT = 16

SendReview = Callable[[Object], Awaitable[Object]]  # the spec of a review to its status
Key = tuple[str, Principal, str, str]


class PoolPermissions:
    def __init__(self, send: SendReview, *, monotonic_s: Callable[[], float]) -> None:
        """Create it; `send` raises StoreError without a response of the API server."""
        self._send = send
        self._monotonic_s = monotonic_s
        self._known: OrderedDict[Key, tuple[float, bool]] = OrderedDict()
        self._turns = asyncio.Semaphore(MAX_CONCURRENT)

    async def may(self, verb: str, principal: Principal, namespace: str, name: str) -> bool:
        """Return whether RBAC allows it; "" is all namespaces, and all names.

        Raises SenderRejected.
        """
        key = verb, principal, namespace, name
        known = self._known.get(key)
        if known is not None and self._monotonic_s() < known[0] + FRESH_SECONDS:
            return known[1]
        asked_at_s = self._monotonic_s()
        try:
            async with asyncio.timeout(REVIEW_SECONDS), self._turns:
                status = await self._send(spec_of(verb, principal, namespace, name))
        except (StoreError, TimeoutError) as error:
            log.error("access not reviewed by the API server", extra={"error": str(error)[:500]})
            raise SenderRejected(
                Reason.NOT_REVIEWED,
                f"the API server did not review the permission: {RETRY}",
                sender=principal.name,
            ) from error
        allowed = status.get("allowed") is True and status.get("denied") is not True
        self._known[key] = asked_at_s, allowed
        self._known.move_to_end(key)
        while len(self._known) > MAX_ENTRIES:
            self._known.popitem(last=False)
        return allowed


def spec_of(verb: str, principal: Principal, namespace: str, name: str) -> Object:
    attributes = {
        "group": BROKER_POOL.group,
        "resource": BROKER_POOL.plural,
        "verb": verb,
        "name": name,
        "namespace": namespace,
    }
    return {
        "user": principal.name,
        "groups": list(principal.groups),
        "resourceAttributes": {name: value for name, value in attributes.items() if value},
    }
