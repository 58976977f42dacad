"""Send ISR proposals to the controller (Kafka's AlterPartitionManager).

One request is in flight for the whole broker, with each partition's newest proposal; it is retried
until answered or replaced. A partition leaves the queue before its result is handled, so that
handling may queue it again (KAFKA-14010).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tidemark_protocol.controller_messages import (
    AlterPartitionResponse,
    InSyncAnswer,
    InSyncProposal,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import TopicId

RETRY_SECONDS = 0.05

_log = logging.getLogger(__name__)

Send = Callable[[tuple[InSyncProposal, ...]], Awaitable[AlterPartitionResponse | None]]
OnAnswer = Callable[[InSyncProposal, InSyncAnswer], None]


class ProposalQueue:
    def __init__(self, *, send: Send, on_answer: OnAnswer) -> None:
        """Create an empty queue.

        `send` returns None without a usable response; then all is sent again.
        """
        self._send = send
        self._on_answer = on_answer
        self._queued: dict[tuple[TopicId, int], InSyncProposal] = {}
        self._has_queued = asyncio.Event()

    def propose(self, proposal: InSyncProposal) -> None:
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
        is_all_well = True
        for answer in response.answers:
            proposal = sent.pop((answer.topic_id, answer.partition), None)
            if proposal is None:
                continue
            _log.info(
                "in-sync replicas proposed",
                extra={
                    "topic_id": proposal.topic_id,
                    "partition": proposal.partition,
                    "leader_epoch": proposal.leader_epoch,
                    "partition_epoch": proposal.partition_epoch,
                    "proposed": [member.broker_id for member in proposal.new_in_sync_replicas],
                    "answer": answer.error.name,
                },
            )
            is_all_well = is_all_well and answer.error is ErrorCode.NONE
            self._on_answer(proposal, answer)
        self._put_back(sent)  # the answer did not name them
        return is_all_well and not sent

    def _put_back(self, sent: dict[tuple[TopicId, int], InSyncProposal]) -> None:
        for key, proposal in sent.items():
            self._queued.setdefault(key, proposal)  # a newer one replaced it
        if self._queued:
            self._has_queued.set()
