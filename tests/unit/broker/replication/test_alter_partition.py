"""AlterPartition requests: batched, one in flight, asked for ever (AlterPartitionManagerTest)."""

import asyncio
from collections.abc import Awaitable, Callable

from tidemark_broker.replication.alter_partition import ProposalQueue
from tidemark_protocol.controller_messages import (
    AlterPartitionResponse,
    InSyncAnswer,
    InSyncProposal,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import LeaderEpoch, PartitionEpoch, TopicId

from tests.support.waiting import HANG_SECONDS, eventually

TOPIC_ID = TopicId("t")


def a_proposal(partition: int, epoch: int = 1) -> InSyncProposal:
    return InSyncProposal(TOPIC_ID, partition, LeaderEpoch(1), PartitionEpoch(epoch), ())


def an_answer(partition: int, error: ErrorCode = ErrorCode.NONE) -> InSyncAnswer:
    return InSyncAnswer(TOPIC_ID, partition, error)


class Bench:
    def __init__(self) -> None:
        self.sent: list[tuple[InSyncProposal, ...]] = []
        self.futures: list[asyncio.Future[AlterPartitionResponse | None]] = []
        self.answered: list[tuple[InSyncProposal, ErrorCode]] = []
        self.propose_again: list[InSyncProposal] = []
        self.queue = ProposalQueue(send=self.send, on_answer=self.on_answer)

    async def send(self, proposals: tuple[InSyncProposal, ...]) -> AlterPartitionResponse | None:
        self.sent.append(proposals)
        self.futures.append(asyncio.get_running_loop().create_future())
        return await self.futures[-1]

    def on_answer(self, proposal: InSyncProposal, answer: InSyncAnswer) -> None:
        self.answered.append((proposal, answer.error))
        for again in self.propose_again:
            self.queue.propose(again)
        self.propose_again = []

    def answer(self, *answers: InSyncAnswer, error: ErrorCode = ErrorCode.NONE) -> None:
        self.futures[-1].set_result(AlterPartitionResponse(error, answers=answers))


def run(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        task = asyncio.ensure_future(bench.queue.run())
        try:
            async with asyncio.timeout(HANG_SECONDS):
                await scenario(bench)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_what_gathers_while_one_is_in_flight_goes_in_the_next() -> None:
    async def scenario(bench: Bench) -> None:
        bench.queue.propose(a_proposal(0))
        await eventually(lambda: len(bench.sent) == 1)
        bench.queue.propose(a_proposal(1))
        bench.queue.propose(a_proposal(2, epoch=1))
        bench.queue.propose(a_proposal(2, epoch=2))  # replaces
        bench.answer(an_answer(0))
        await eventually(lambda: len(bench.sent) == 2)
        assert bench.sent == [(a_proposal(0),), (a_proposal(1), a_proposal(2, epoch=2))]

    run(scenario)


def test_a_partition_that_the_answer_does_not_name_is_sent_again() -> None:
    async def scenario(bench: Bench) -> None:
        bench.queue.propose(a_proposal(0))
        bench.queue.propose(a_proposal(1))
        await eventually(lambda: len(bench.sent) == 1)
        bench.answer(an_answer(0))
        await eventually(lambda: len(bench.sent) == 2)
        assert bench.sent[1] == (a_proposal(1),)
        assert bench.answered == [(a_proposal(0), ErrorCode.NONE)]

    run(scenario)


def test_everything_is_sent_again_when_there_was_no_answer_to_use() -> None:
    async def scenario(bench: Bench) -> None:
        bench.queue.propose(a_proposal(0))
        await eventually(lambda: len(bench.sent) == 1)
        bench.futures[-1].set_result(None)
        await eventually(lambda: len(bench.sent) == 2)
        bench.answer(error=ErrorCode.STALE_BROKER_EPOCH)
        await eventually(lambda: len(bench.sent) == 3)
        assert bench.answered == []

    run(scenario)


def test_handling_an_answer_may_propose_again() -> None:  # KAFKA-14010
    async def scenario(bench: Bench) -> None:
        bench.propose_again = [a_proposal(0, epoch=2)]
        bench.queue.propose(a_proposal(0))
        await eventually(lambda: len(bench.sent) == 1)
        bench.answer(an_answer(0, ErrorCode.INELIGIBLE_REPLICA))
        await eventually(lambda: len(bench.sent) == 2)
        assert bench.sent[1] == (a_proposal(0, epoch=2),)

    run(scenario)


def test_a_newer_proposal_is_not_replaced_by_one_put_back() -> None:
    async def scenario(bench: Bench) -> None:
        bench.queue.propose(a_proposal(0))
        await eventually(lambda: len(bench.sent) == 1)
        bench.queue.propose(a_proposal(0, epoch=2))
        bench.futures[-1].set_result(None)
        await eventually(lambda: len(bench.sent) == 2)
        assert bench.sent[1] == (a_proposal(0, epoch=2),)

    run(scenario)
