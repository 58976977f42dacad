"""Keep a follower's session and its delayed fetch, for one connection.

A session (KIP-227, docs/decisions/0032) remembers what the follower fetches, so a request names
only what changed: a partition that is fetched again, or no longer. An answer with records, an error
or a divergence closes the fetch of a partition: the follower fetches again or does not. A
connection has one session.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from tidemark_protocol.ids import BrokerId, Offset, TopicId

from tidemark_broker.clock import Timer
from tidemark_broker.kafka_wire.messages.fetch import FetchPartition, FetchRequest, TopicResponse
from tidemark_broker.replication.core.remote_replica import FollowerContact

REPLICA_FETCH_MAX_BYTES = 10 * 1024 * 1024  # of an answer; Kafka: replica.fetch.response.max.bytes
REPLICA_SESSION_ID = 1  # a connection has one, so all have the same
FIRST_SESSION_EPOCH = 0
MAX_SESSION_EPOCH = 2**31 - 1

Respond = Callable[[tuple[TopicResponse, ...]], None]
Key = tuple[TopicId, int]


def next_session_epoch(epoch: int) -> int:
    return epoch % MAX_SESSION_EPOCH + 1


@dataclass(slots=True, eq=False)
class DelayedFollowerFetch:
    """A fetch that waits for news."""

    respond: Respond
    timer: Timer
    watermark_timer: Timer | None = None

    def cancel(self) -> None:
        self.timer.cancel()
        if self.watermark_timer is not None:
            self.watermark_timer.cancel()


_numbers = count()  # of connections, in the order in which they were accepted


class FollowerSession:
    __slots__ = (
        "contact",
        "delayed",
        "is_peer",
        "moved",
        "next_epoch",
        "number",
        "only_as",
        "reported_positions",
        "request",
        "requested",
        "unread",
        "watched",
    )

    def __init__(self) -> None:
        self.number = next(_numbers)
        # The broker that the client's certificate names, NO_BROKER for one that names none; None:
        # the pool has no TLS, and followers say themselves who they are.
        self.only_as: BrokerId | None = None
        self.is_peer = False  # it fetched as the present life of a broker of the pool
        self.requested: dict[Key, FetchPartition] = {}  # open questions
        self.watched: dict[Key, None] = {}  # those, and those answered with records just now
        self.unread: dict[Key, None] = {}  # may have records or a refusal; the first waits longest
        self.moved: dict[Key, None] = {}  # watermark or log start may have
        self.reported_positions: dict[Key, tuple[Offset, Offset]] = {}  # watermark, log start
        self.delayed: DelayedFollowerFetch | None = None
        self.contact = FollowerContact()
        self.request: FetchRequest | None = None  # the last one: who asks, and its limits
        self.next_epoch = FIRST_SESSION_EPOCH

    def restrict_to(self, broker_id: BrokerId) -> None:
        """Let the client fetch as this broker only; NO_BROKER: as none."""
        self.only_as = broker_id

    def may_fetch_as(self, replica_id: int) -> bool:
        """Return whether the client may fetch as this replica."""
        return self.only_as is None or self.only_as == replica_id

    def may_apply(self, request: FetchRequest) -> bool:
        """Return whether the request begins a session or is the next one of this session."""
        if request.session_epoch <= FIRST_SESSION_EPOCH:
            return True
        previous = self.request
        return (
            previous is not None
            and request.session_epoch == self.next_epoch
            and request.session_id == REPLICA_SESSION_ID
            and request.replica_id == previous.replica_id
            and request.replica_epoch == previous.replica_epoch
        )
