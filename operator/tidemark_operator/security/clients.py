"""Define what knows the clients of a pool: who they are, by token or password."""

from dataclasses import dataclass
from typing import Protocol

from tidemark_protocol.access_messages import Principal


class ReviewUnavailable(Exception):
    """An error: what knows the clients could not be asked, so nothing is known of this one."""


@dataclass(frozen=True, slots=True)
class ReviewedClient:
    """What is known of a token: its principal and expiry (wall clock; 0: none), or a reason."""

    principal: Principal | None
    expires_at_ms: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PasswordUser:
    principal: Principal
    password: str


class ClientDirectory(Protocol):
    """What knows the clients: Kubernetes, or the file of users of local mode.

    Both methods raise ReviewUnavailable.
    """

    async def review_token(self, pool: str, token: str, *, source: str) -> ReviewedClient: ...

    async def find_user(self, pool: str, name: str) -> PasswordUser | None: ...
