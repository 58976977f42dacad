"""AlterPartition requests: batched, one in flight, asked for ever (AlterPartitionManagerTest)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import pytest
from tidemark_broker.replication.alter_partition import RESPONSES_AT_A_TIME, AlterPartitionManager
from tidemark_protocol.controller_messages import (
    AlterPartitionResponse,
    IsrProposal,
    IsrResult,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import LeaderEpoch, PartitionEpoch, TopicId

from tests.support.waiting import HANG_SECONDS, eventually

TOPIC_ID = TopicId("t")


def a_proposal(partition: int, epoch: int = 1) -> IsrProposal:
    return IsrProposal(TOPIC_ID, partition, LeaderEpoch(1), PartitionEpoch(epoch), ())


def an_response(partition: int, error: ErrorCode = ErrorCode.NONE) -> IsrResult:
    return IsrResult(TOPIC_ID, partition, error)


class Harness:
    def __init__(self) -> None:
        self.sent: list[tuple[IsrProposal, ...]] = []
        self.futures: list[asyncio.Future[AlterPartitionResponse | None]] = []
        self.responded: list[tuple[IsrProposal, ErrorCode]] = []
        self.slices: list[int] = []  # how many answers were handled in one turn
        self.propose_again: list[IsrProposal] = []
        self.queue = AlterPartitionManager(send=self.send, on_responses=self.on_responses)

    async def send(self, proposals: tuple[IsrProposal, ...]) -> AlterPartitionResponse | None:
        self.sent.append(proposals)
        self.futures.append(asyncio.get_running_loop().create_future())
        return await self.futures[-1]

    def on_responses(self, responded: Sequence[tuple[IsrProposal, IsrResult]]) -> None:
        self.slices.append(len(responded))
        self.responded.extend((proposal, response.error) for proposal, response in responded)
        for again in self.propose_again:
            self.queue.submit(again)
        self.propose_again = []

    def answer(self, *answers: IsrResult, error: ErrorCode = ErrorCode.NONE) -> None:
        self.futures[-1].set_result(AlterPartitionResponse(error, answers=answers))


def run(scenario: Callable[[Harness], Awaitable[None]]) -> None:
    async def main() -> None:
        harness = Harness()
        task = asyncio.ensure_future(harness.queue.run())
        try:
            async with asyncio.timeout(HANG_SECONDS):
                await scenario(harness)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_what_gathers_while_one_is_in_flight_goes_in_the_next() -> None:
    async def scenario(harness: Harness) -> None:
        harness.queue.submit(a_proposal(0))
        await eventually(lambda: len(harness.sent) == 1)
        harness.queue.submit(a_proposal(1))
        harness.queue.submit(a_proposal(2, epoch=1))
        harness.queue.submit(a_proposal(2, epoch=2))  # replaces
        harness.answer(an_response(0))
        await eventually(lambda: len(harness.sent) == 2)
        assert harness.sent == [(a_proposal(0),), (a_proposal(1), a_proposal(2, epoch=2))]

    run(scenario)


def test_a_partition_that_the_answer_does_not_name_is_sent_again() -> None:
    async def scenario(harness: Harness) -> None:
        harness.queue.submit(a_proposal(0))
        harness.queue.submit(a_proposal(1))
        await eventually(lambda: len(harness.sent) == 1)
        harness.answer(an_response(0))
        await eventually(lambda: len(harness.sent) == 2)
        assert harness.sent[1] == (a_proposal(1),)
        assert harness.responded == [(a_proposal(0), ErrorCode.NONE)]

    run(scenario)


def test_everything_is_sent_again_when_there_was_no_answer_to_use() -> None:
    async def scenario(harness: Harness) -> None:
        harness.queue.submit(a_proposal(0))
        await eventually(lambda: len(harness.sent) == 1)
        harness.futures[-1].set_result(None)
        await eventually(lambda: len(harness.sent) == 2)
        harness.answer(error=ErrorCode.STALE_BROKER_EPOCH)
        await eventually(lambda: len(harness.sent) == 3)
        assert harness.responded == []

    run(scenario)


def test_handling_an_answer_may_propose_again() -> None:  # KAFKA-14010
    async def scenario(harness: Harness) -> None:
        harness.propose_again = [a_proposal(0, epoch=2)]
        harness.queue.submit(a_proposal(0))
        await eventually(lambda: len(harness.sent) == 1)
        harness.answer(an_response(0, ErrorCode.INELIGIBLE_REPLICA))
        await eventually(lambda: len(harness.sent) == 2)
        assert harness.sent[1] == (a_proposal(0, epoch=2),)

    run(scenario)


def test_a_newer_proposal_is_not_replaced_by_one_put_back() -> None:
    async def scenario(harness: Harness) -> None:
        harness.queue.submit(a_proposal(0))
        await eventually(lambda: len(harness.sent) == 1)
        harness.queue.submit(a_proposal(0, epoch=2))
        harness.futures[-1].set_result(None)
        await eventually(lambda: len(harness.sent) == 2)
        assert harness.sent[1] == (a_proposal(0, epoch=2),)

    run(scenario)


def test_an_answer_about_thousands_is_handled_in_slices_that_others_run_between() -> None:
    count = 2 * RESPONSES_AT_A_TIME + 10

    async def scenario(harness: Harness) -> None:
        for partition in range(count):
            harness.queue.submit(a_proposal(partition))
        await eventually(lambda: len(harness.sent) == 1)
        harness.answer(*(an_response(partition) for partition in range(count)))
        seen = []
        while len(harness.responded) < count:
            seen.append(len(harness.responded))
            await asyncio.sleep(0)
        assert {RESPONSES_AT_A_TIME, 2 * RESPONSES_AT_A_TIME} <= set(seen)  # it ran between them
        assert harness.slices == [RESPONSES_AT_A_TIME, RESPONSES_AT_A_TIME, 10]
        assert [proposal for proposal, _ in harness.responded] == list(harness.sent[0])

    run(scenario)


def test_what_is_proposed_between_two_slices_is_sent_next_and_nothing_twice() -> None:
    count = RESPONSES_AT_A_TIME + 2

    async def scenario(harness: Harness) -> None:
        for partition in range(count):
            harness.queue.submit(a_proposal(partition))
        await eventually(lambda: len(harness.sent) == 1)
        harness.propose_again = [a_proposal(0, epoch=2), a_proposal(count - 1, epoch=2)]
        harness.answer(*(an_response(partition) for partition in range(count - 1)))
        await eventually(lambda: len(harness.sent) == 2)
        # The last one was not answered, and what replaced it meanwhile is sent instead.
        assert harness.sent[1] == (a_proposal(0, epoch=2), a_proposal(count - 1, epoch=2))
        assert len(harness.responded) == count - 1

    run(scenario)


def test_a_slice_of_answers_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scenario(harness: Harness) -> None:
        for partition in range(RESPONSES_AT_A_TIME + 1):
            harness.queue.submit(a_proposal(partition))
        await eventually(lambda: len(harness.sent) == 1)
        harness.answer(*(an_response(partition) for partition in range(RESPONSES_AT_A_TIME + 1)))
        await eventually(lambda: len(harness.slices) == 2)

    run(scenario)
    assert [record.getMessage() for record in caplog.records] == [
        "in-sync replicas of partitions proposed",
        "in-sync replicas proposed",
    ]
