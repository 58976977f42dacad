"""Track the open long polls of one pool's brokers, and what they show (S19).

A poll is open, or was answered a moment ago, or its connection broke. Only without an open poll a
refused probe fences: a process that holds its poll open is alive, whatever refuses our probe.
"""

import asyncio
from dataclasses import dataclass

from tidemark_protocol.controller_messages import HeartbeatRequest, HeartbeatResponse
from tidemark_protocol.ids import BrokerEpoch, BrokerId

# Between an answer and the next poll: longer than any round trip we should see, and far below a
# session. A process killed in just that gap is fenced this much later.
RESPONDED_GRACE_MS = 200


@dataclass(slots=True)
class LongPoll:
    request: HeartbeatRequest
    deadline_ms: int
    answer: asyncio.Future[HeartbeatResponse]

    @property
    def broker_id(self) -> BrokerId:
        return self.request.broker_id

    @property
    def broker_epoch(self) -> BrokerEpoch:
        return self.request.broker_epoch

    @property
    def applied_version(self) -> int:
        return self.request.applied_image_version

    @property
    def wants_to_stop(self) -> bool:
        return self.request.wants_to_stop


class LongPolls:
    def __init__(self) -> None:
        self._open: dict[BrokerId, LongPoll] = {}
        self._responded_at_ms: dict[BrokerId, int] = {}
        self._broken: set[BrokerId] = set()

    def open(self, poll: LongPoll) -> LongPoll | None:
        """Add a poll; return an older one of the same broker, to be answered immediately."""
        older = self._open.get(poll.broker_id)
        self._open[poll.broker_id] = poll
        self._broken.discard(poll.broker_id)
        return older

    def opened(self) -> tuple[LongPoll, ...]:
        return tuple(self._open.values())

    def of(self, broker_id: BrokerId) -> LongPoll | None:
        return self._open.get(broker_id)

    def answer(self, poll: LongPoll, response: HeartbeatResponse, now_ms: int) -> None:
        if self._open.get(poll.broker_id) is poll:
            del self._open[poll.broker_id]
        self._responded_at_ms[poll.broker_id] = now_ms
        if not poll.answer.done():
            poll.answer.set_result(response)

    def record_broken(self, poll: LongPoll) -> bool:
        """Record a poll that ended without a response; False if a newer one had replaced it."""
        if self._open.get(poll.broker_id) is not poll:
            return False
        del self._open[poll.broker_id]
        self._broken.add(poll.broker_id)
        return True

    def extend(self, stall_ms: int, now_ms: int) -> None:
        """Extend the times by a stall of the controller: a next poll may wait unread (S21)."""
        for broker_id, responded_at_ms in self._responded_at_ms.items():
            self._responded_at_ms[broker_id] = min(responded_at_ms + stall_ms, now_ms)

    # guard: refused-broker-still-polls (S19)
    def is_closed(self, broker_id: BrokerId, now_ms: int) -> bool:
        if broker_id in self._open:
            return False
        if broker_id in self._broken:
            return True
        responded_at_ms = self._responded_at_ms.get(broker_id)
        return responded_at_ms is None or now_ms - responded_at_ms >= RESPONDED_GRACE_MS
