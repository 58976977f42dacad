"""Define who the client of a connection is, and what its listener requires and serves.

The network refuses requests by it; the handlers of SaslHandshake and SaslAuthenticate change it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tidemark_protocol.access_messages import ANONYMOUS, Principal

from tidemark_broker.kafka.network.replica_rights import ReplicaRights
from tidemark_broker.security.exchange import Exchange


@dataclass(frozen=True, slots=True)
class ListenerRules:
    """What a listener requires of its clients, and whom it serves.

    A listener for replicas serves nothing but followers' fetches.
    """

    requires_authentication: bool = False
    may_authenticate: bool = False  # who does not has all rights
    replicas: ReplicaRights = ReplicaRights.ANY
    serves_clients: bool = True


OPEN = ListenerRules()


def _nothing() -> None:
    return None


@dataclass(slots=True, eq=False)
class ClientSession:
    """The authentication of one connection.

    `expires_at_s` is the loop's time from which it is over (KIP-368). `exchange` is the one under
    way, and `rejection` why it has failed although the client has not ended it yet. With
    `takes_bare_bytes` the next frame is the mechanism's bytes alone. `failure` says why the
    connection ends after the response that is being made. A client that `is_certified` showed a
    certificate; it may still become the user of a token or password.
    """

    rules: ListenerRules = OPEN
    principal: Principal = ANONYMOUS
    is_authenticated: bool = False
    is_certified: bool = False
    expires_at_s: float | None = None
    mechanism: str = ""
    exchange: Exchange | None = None
    takes_bare_bytes: bool = False
    failure: str = ""
    rejection: str = ""
    on_authenticated: Callable[[], None] = field(default=_nothing)

    @property
    def can_authenticate(self) -> bool:
        return self.rules.requires_authentication or self.rules.may_authenticate

    @property
    def must_authenticate(self) -> bool:
        return self.rules.requires_authentication and not self.is_authenticated

    def certify(self, principal: Principal, expires_at_s: float) -> None:
        """Count the client as authenticated until its certificate ends."""
        self.principal, self.expires_at_s = principal, expires_at_s
        self.is_authenticated = self.is_certified = True

    def is_over(self, now_s: float) -> bool:
        """Return whether the client has to authenticate again before any other request."""
        return self.expires_at_s is not None and now_s >= self.expires_at_s
