"""Producer ids for clients: a block at a time, none twice, an error while nobody hands them out."""

import asyncio

import pytest
from tidemark_broker.metadata import producer_id_manager
from tidemark_broker.metadata.producer_id_manager import (
    MAX_PRODUCER_EPOCH,
    ProducerIdManager,
    ProducerIdResult,
)
from tidemark_protocol.controller_messages import AllocateProducerIdsResponse
from tidemark_protocol.error_codes import ErrorCode

from tests.support.waiting import run


class Controller:
    """Gives blocks of three; `away` is how many questions it does not answer first."""

    def __init__(self, away: int = 0) -> None:
        self.away = away
        self.requested = 0
        self._next_id = 6000

    async def allocate(self) -> AllocateProducerIdsResponse | None:
        self.requested += 1
        await asyncio.sleep(0)
        if self.requested <= self.away:
            return None
        first, self._next_id = self._next_id, self._next_id + 1_000_000
        return AllocateProducerIdsResponse(ErrorCode.NONE, first_producer_id=first, count=3)


def ids_of(controller: Controller) -> ProducerIdManager:
    return ProducerIdManager(controller.allocate)


def test_a_block_is_used_up_before_the_next_is_asked_for() -> None:
    async def scenario() -> None:
        controller = Controller()
        ids = ids_of(controller)
        found = [(await ids.init()).producer_id for _ in range(4)]
        assert found == [6000, 6001, 6002, 1_006_000]
        assert controller.requested == 2

    run(scenario)


def test_many_who_ask_at_once_get_one_id_each() -> None:
    async def scenario() -> None:
        controller = Controller()
        ids = ids_of(controller)
        found = await asyncio.gather(*(ids.init() for _ in range(7)))
        assert len({result.producer_id for result in found}) == 7
        assert controller.requested == 3

    run(scenario)


def test_a_controller_that_changes_is_asked_again() -> None:
    async def scenario() -> None:
        assert await ids_of(Controller(away=2)).init() == ProducerIdResult(ErrorCode.NONE, 6000, 0)

    run(scenario)


def test_without_a_controller_it_says_so_within_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_id_manager, "WAIT_LIMIT_SECONDS", 0.05)

    async def scenario() -> None:
        controller = Controller(away=1_000_000)
        ids = ids_of(controller)
        found = await asyncio.gather(*(ids.init() for _ in range(3)))
        assert {result.error for result in found} == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        controller.away = 0
        assert (await ids.init()).error is ErrorCode.NONE

    run(scenario)


def test_an_id_in_use_goes_on_in_the_next_epoch_without_the_controller() -> None:
    async def scenario() -> None:
        assert await ids_of(Controller()).init(42, 6) == ProducerIdResult(ErrorCode.NONE, 42, 7)

    run(scenario)


def test_after_the_last_epoch_comes_a_new_id() -> None:
    async def scenario() -> None:
        ids = ids_of(Controller())
        assert await ids.init(42, MAX_PRODUCER_EPOCH - 1) == ProducerIdResult(
            ErrorCode.NONE, 42, MAX_PRODUCER_EPOCH
        )
        assert await ids.init(42, MAX_PRODUCER_EPOCH) == ProducerIdResult(ErrorCode.NONE, 6000, 0)

    run(scenario)


@pytest.mark.parametrize("requested", [(5, -1), (-1, 0), (5, 2**15), (2**63, 0), (-2, 1)])
def test_half_an_identity_is_refused(requested: tuple[int, int]) -> None:
    async def scenario() -> None:
        found = await ids_of(Controller()).init(*requested)
        assert found.error is ErrorCode.INVALID_REQUEST
        assert found.message

    run(scenario)
