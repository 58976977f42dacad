"""Describe a request that is rejected for its sender, and log such rejections at a bounded rate."""

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from tidemark_protocol.audit_line import REJECTED, AuditLine
from tidemark_protocol.connection_rejections import ConnectionRejections

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 10.0  # one line for each sender and reason
MAX_SENDERS = 1000


class Reason(StrEnum):
    """Why a request is rejected, as the audit log names it."""

    NO_TOKEN = "NoToken"
    INVALID_TOKEN = "InvalidToken"
    NOT_A_BROKER = "NotABroker"
    OTHER_BROKER = "OtherBroker"
    NO_PERMISSION = "NoPermission"
    NO_OWNER = "NoOwner"
    UNKNOWN_HOST = "UnknownHost"
    NOT_REVIEWED = "NotReviewed"


STATUS_OF = {
    Reason.NO_TOKEN: 401,
    Reason.INVALID_TOKEN: 401,
    Reason.NOT_REVIEWED: 503,
}


class SenderRejected(Exception):
    """An error: the sender is not known or may not do this; the text says what to do.

    `sender` is the identity as far as it is known. Neither has any part of a token.
    """

    def __init__(self, reason: Reason, text: str, *, sender: str = "") -> None:
        super().__init__(text)
        self.reason = reason
        self.sender = sender

    @property
    def status(self) -> int:
        return STATUS_OF.get(self.reason, 403)


@dataclass(slots=True)
class _Sent:
    until_s: float
    suppressed: int = 0


class RejectionLog:
    """A structured line for each rejection; repetitions within some seconds are only counted."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.connections = ConnectionRejections(lambda: int(now_s() * 1000))
        self._sent: OrderedDict[tuple[str, str, Reason], _Sent] = OrderedDict()

    def record(self, method: str, path: str, address: str, rejected: SenderRejected) -> None:
        key = address, rejected.sender, rejected.reason
        now_s = self._now_s()
        sent = self._sent.pop(key, None)
        if sent is not None and now_s < sent.until_s:
            sent.suppressed += 1
            self._sent[key] = sent
            return
        self._sent[key] = _Sent(now_s + INTERVAL_SECONDS)
        while len(self._sent) > MAX_SENDERS:
            self._sent.popitem(last=False)
        log.warning(
            "request rejected",
            extra={
                **AuditLine(
                    outcome=REJECTED,
                    principal=rejected.sender,
                    address=address,
                    protocol="controller",
                    verb=method,
                    resource=path,
                    reason=rejected.reason.value,
                    detail=str(rejected),
                ).fields(),
                "status": rejected.status,
                "suppressed": 0 if sent is None else sent.suppressed,
            },
        )
