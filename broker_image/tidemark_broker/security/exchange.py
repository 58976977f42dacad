"""Define the steps of an exchange between a SASL client and this broker.

An exchange decides without I/O: it takes the client's bytes, or what the controller found, and
returns the next step. After a step that asks for something, `on_found` is called with the result.
"""

from dataclasses import dataclass
from typing import Protocol

from tidemark_protocol.access_messages import Principal

MAX_USER_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Identity:
    """A client's principal, and when what proved it expires (wall clock; 0: not known)."""

    principal: Principal
    expires_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Review:
    """What the controller says of a token or a password: an identity, or why there is none."""

    identity: Identity | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What verifies a SCRAM client; without a principal there is no such user."""

    principal: Principal | None
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


Found = Review | ScramCredential


@dataclass(frozen=True, slots=True)
class Challenge:
    """It is the client's turn; `rejection` says why it has failed already."""

    data: bytes
    rejection: str = ""


@dataclass(frozen=True, slots=True)
class AskToken:
    token: str


@dataclass(frozen=True, slots=True)
class AskPassword:
    user: str
    password: str


@dataclass(frozen=True, slots=True)
class AskScramCredential:
    user: str
    mechanism: str


@dataclass(frozen=True, slots=True)
class Authenticated:
    identity: Identity
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class AuthenticationFailed:
    """The end of the exchange; the sentence is for the client."""

    reason: str


Ask = AskToken | AskPassword | AskScramCredential
Step = Challenge | Ask | Authenticated | AuthenticationFailed


class Exchange(Protocol):
    """One mechanism's side of the server, for one authentication."""

    def on_client(self, data: bytes) -> Step: ...

    def on_found(self, found: Found) -> Step: ...
