"""Authenticate this operator at brokers, for what the live page reads from them (decision 0182).

A broker that gets a token asks the active controller whose it is, as for each client. So the
controller alone makes and verifies these tokens, by a key that only its process has: a controller
that takes over makes its own. A token is for one broker, which cannot use it at another one.
"""

import hmac
import secrets
from collections.abc import Callable, Sequence

from tidemark_protocol.access_messages import Access, Principal, Verb
from tidemark_protocol.ids import BrokerId

from tidemark_operator.security.clients import ReviewedClient

# It has no group, unlike each user of Kubernetes, and Secrets cannot name it.
OPERATOR = Principal("tidemark:operator")
STEP_S = 150  # a token is valid for one to two of these
_PREFIX = "tidemark-operator"


class OperatorTokens:
    def __init__(self, wall_clock_s: Callable[[], float]) -> None:
        """Create it with a key of its own, which is never stored or sent."""
        self._key = secrets.token_bytes(32)
        self._wall_clock_s = wall_clock_s

    def authorization(self, pool: str, broker_id: BrokerId) -> dict[str, str]:
        """Return the header of a request to a broker."""
        ends_s = (int(self._wall_clock_s()) // STEP_S + 2) * STEP_S
        return {"Authorization": f"Bearer {self._token(pool, broker_id, ends_s)}"}

    def review(self, pool: str, broker_id: BrokerId, token: str) -> ReviewedClient | None:
        """Review a token that a broker got; None if it is not an operator's."""
        prefix, _, rest = token.partition(".")
        if prefix != _PREFIX:
            return None
        ends, _, _ = rest.partition(".")
        if not (ends.isascii() and ends.isdecimal() and len(ends) < 16):
            return ReviewedClient(None, reason="it is not valid")
        expected = self._token(pool, broker_id, int(ends))
        if not hmac.compare_digest(token.encode(), expected.encode()):
            return ReviewedClient(None, reason="it is of another operator, or for another broker")
        if self._wall_clock_s() >= int(ends):
            return ReviewedClient(None, reason="it has expired")
        return ReviewedClient(OPERATOR, int(ends) * 1000)

    def _token(self, pool: str, broker_id: BrokerId, ends_s: int) -> str:
        message = f"{pool}\0{broker_id}\0{ends_s}".encode()
        return f"{_PREFIX}.{ends_s}.{hmac.digest(self._key, message, 'sha256').hex()}"


def operator_accesses(accesses: Sequence[Access]) -> tuple[bool, ...]:
    """Return what the operator may do at brokers: see topics, groups and pools, and no records."""
    return tuple(access.verb is Verb.DESCRIBE for access in accesses)
