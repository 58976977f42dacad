"""Send ISR proposals to the controller (Kafka's AlterPartitionManager).

One request is in flight for the whole broker, with each partition's newest proposal; it is retried
until answered or replaced. A partition leaves the queue before its result is handled, so that
handling may queue it again (KAFKA-14010). Results are handled a few at a time, and other tasks run
in between: after a broker was killed, or came back, one response names thousands of partitions.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from tidemark_protocol.controller_messages import (
    AlterPartitionResponse,
    IsrProposal,
    IsrResult,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import TopicId

RETRY_SECONDS = 0.05
RESPONSES_AT_A_TIME = 50  # handled in one turn of the loop, some 20 microseconds each

_log = logging.getLogger(__name__)

Send = Callable[[tuple[IsrProposal, ...]], Awaitable[AlterPartitionResponse | None]]
Responded = tuple[IsrProposal, IsrResult]
OnResponses = Callable[[Sequence[Responded]], None]


class AlterPartitionManager:
    def __init__(self, *, send: Send, on_responses: OnResponses) -> None:
        """Create an empty queue.

        `send` returns None without a usable response; then all is sent again.
        """
        self._send = send
        self._on_responses = on_responses
        self._queued: dict[tuple[TopicId, int], IsrProposal] = {}
        self._has_queued = asyncio.Event()

    def submit(self, proposal: IsrProposal) -> None:
        self._queued[proposal.topic_id, proposal.partition] = proposal
        self._has_queued.set()

    async def run(self) -> None:
        """Send proposals until cancelled."""
        while True:
            await self._has_queued.wait()
            if not await self._send_all():
                await asyncio.sleep(RETRY_SECONDS)

    async def _send_all(self) -> bool:
        """Send the queued proposals; return False if some have to be sent again after a pause."""
        sent = dict(self._queued)
        self._queued.clear()
        self._has_queued.clear()
        response = await self._send(tuple(sent.values()))
        if response is None or response.error is not ErrorCode.NONE:
            self._put_back(sent)
            return False
        responses = response.answers
        is_all_well = all(answer.error is ErrorCode.NONE for answer in responses)
        for at in range(0, len(responses), RESPONSES_AT_A_TIME):
            if at:
                await asyncio.sleep(0)  # let others run between slices
            few = [
                (proposal, answer)
                for answer in responses[at : at + RESPONSES_AT_A_TIME]
                if (proposal := sent.pop((answer.topic_id, answer.partition), None)) is not None
            ]
            _log_responses(few)
            self._on_responses(few)
        self._put_back(sent)  # the answer did not name them
        return is_all_well and not sent

    def _put_back(self, sent: dict[tuple[TopicId, int], IsrProposal]) -> None:
        for key, proposal in sent.items():
            self._queued.setdefault(key, proposal)  # a newer one replaced it
        if self._queued:
            self._has_queued.set()


def _log_responses(responded: Sequence[Responded]) -> None:
    """Log all responses in one line: a line costs more than a response."""
    reported = [
        {
            "topic_id": proposal.topic_id,
            "partition": proposal.partition,
            "leader_epoch": proposal.leader_epoch,
            "partition_epoch": proposal.partition_epoch,
            "proposed": [member.broker_id for member in proposal.new_in_sync_replicas],
            "answer": response.error.name,
        }
        for proposal, response in responded
    ]
    if len(reported) == 1:
        _log.info("in-sync replicas proposed", extra=reported[0])
    elif reported:
        _log.info("in-sync replicas of partitions proposed", extra={"partitions": reported})
