"""Define a line of the audit log: a rejection, or an action that changed something.

It has one form in brokers and the operator (docs/operations/security.md), no payload, and no part
of a token or password. What a client named is bounded here, and escaped by the JSON of the log.
"""

from dataclasses import dataclass

MAX_NAME = 249
MAX_DETAIL = 500
REJECTED = "rejected"
PERFORMED = "performed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """One line; `reason` is one of few words, `detail` a sentence."""

    outcome: str  # REJECTED | PERFORMED
    principal: str = ""
    address: str = ""
    protocol: str = ""  # kafka, http, controller
    listener: str = ""
    verb: str = ""
    resource: str = ""
    reason: str = ""
    detail: str = ""

    def fields(self) -> dict[str, object]:
        """Return what `logging` takes as `extra`."""
        return {
            "audit": self.outcome,
            "principal": self.principal[:MAX_NAME],
            "address": self.address,
            "protocol": self.protocol,
            "listener": self.listener,
            "verb": self.verb[:MAX_NAME],
            "resource": self.resource[:MAX_NAME],
            "reason": self.reason,
            "detail": self.detail[:MAX_DETAIL],
        }
