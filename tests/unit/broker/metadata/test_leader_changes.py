"""Who asks for leaders when one of them has just died."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from tidemark_broker.metadata.leader_changes import REPORTED_MS, VERDICT_SECONDS, LeaderChanges
from tidemark_broker.metadata.metadata_cache import MetadataCache
from tidemark_protocol.controller_messages import BrokerState, Endpoints, MetadataPush, TopicPush
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import Member, PartitionState, TopicState

from tests.unit.broker.jumping_loop import run_without_waiting

DYING, NEXT = BrokerId(0), BrokerId(1)
ENDPOINTS = Endpoints("127.0.0.1", 9092, 8080, "http://b")


class Watched:
    """Two brokers, the first of which leads."""

    def __init__(self) -> None:
        self.metadata = MetadataCache()
        self.now_ms = 5_000
        self.version = 0
        loop = asyncio.get_running_loop()
        self.leader_changes = LeaderChanges(
            self.metadata, scheduler=loop, clock=lambda: self.now_ms
        )
        self.push(leader=DYING)

    def push(self, *, leader: BrokerId, fenced: frozenset[BrokerId] = frozenset()) -> None:
        self.version += 1
        members = tuple(Member(each, BrokerEpoch(10 + each)) for each in (DYING, NEXT))
        state = PartitionState(
            0,
            (DYING, NEXT),
            leader,
            BrokerEpoch(10 + leader),
            LeaderEpoch(self.version),
            members,
            (),
            PartitionEpoch(self.version),
            1,
        )
        topic = TopicState("orders", TopicId("7f1c0000-0000-0000-0000-000000000001"), 1, 2)
        brokers = tuple(
            BrokerState(
                each.broker_id, each.broker_epoch, each.broker_id in fenced, False, ENDPOINTS
            )
            for each in members
        )
        self.metadata.apply_push(
            MetadataPush(
                ControllerEpoch(1), self.version, True, brokers, (TopicPush(topic, (state,)),)
            )
        )
        self.leader_changes.on_metadata()

    async def is_responded(self, *topics: str) -> bool:
        """Whether somebody who asks now hears before a verdict's time is over."""
        try:
            async with asyncio.timeout(VERDICT_SECONDS / 2):
                await self.leader_changes.verdicts(topics or None)
        except TimeoutError:
            return False
        return True

    def reported(self) -> list[int]:
        return [broker.broker_id for broker in self.leader_changes.live_and_stopping()]


def checked(scenario: Callable[[Watched], Coroutine[Any, Any, None]]) -> None:
    async def begin() -> None:
        await scenario(Watched())

    run_without_waiting(begin)


def test_who_asks_hears_of_the_new_leader_once_there_is_one() -> None:
    async def scenario(watched: Watched) -> None:
        requesting = asyncio.create_task(watched.leader_changes.verdicts(None))
        await asyncio.sleep(0)
        watched.leader_changes.suspect(DYING)  # after the question
        assert not await watched.is_responded()
        assert not requesting.done()
        watched.push(leader=NEXT, fenced=frozenset({DYING}))
        await requesting
        assert await watched.is_responded()

    checked(scenario)


def test_who_asks_for_other_topics_is_answered() -> None:
    async def scenario(watched: Watched) -> None:
        watched.leader_changes.suspect(DYING)
        assert await watched.is_responded("other", "unknown")
        assert not await watched.is_responded("other", "orders")

    checked(scenario)


def test_however_many_are_suspects_nobody_waits_longer_than_for_one_verdict() -> None:
    async def scenario(watched: Watched) -> None:
        requesting = asyncio.create_task(watched.leader_changes.verdicts(None))
        ends = asyncio.get_running_loop().time() + 2 * VERDICT_SECONDS
        while asyncio.get_running_loop().time() < ends and not requesting.done():
            watched.leader_changes.suspect(DYING)
            await asyncio.sleep(VERDICT_SECONDS / 10)
            watched.leader_changes.on_response(DYING)
        assert requesting.done()

    checked(scenario)


def test_without_a_verdict_one_is_answered_all_the_same_and_waits_once_in_a_life() -> None:
    async def scenario(watched: Watched) -> None:
        watched.leader_changes.suspect(DYING)
        assert not await watched.is_responded()
        await watched.leader_changes.verdicts(None)
        watched.leader_changes.suspect(DYING)  # refused again, as for as long as it is not there
        assert await watched.is_responded()
        watched.leader_changes.on_response(DYING)
        watched.leader_changes.suspect(DYING)
        assert not await watched.is_responded()

    checked(scenario)


def test_an_answer_of_the_suspect_is_a_verdict() -> None:
    async def scenario(watched: Watched) -> None:
        watched.leader_changes.suspect(DYING)
        watched.leader_changes.on_response(DYING)
        assert await watched.is_responded()

    checked(scenario)


def test_a_suspect_of_another_life_is_waited_for_as_long_as_the_first() -> None:
    """The former life's time is over in the middle of the new one's."""

    async def scenario(watched: Watched) -> None:
        watched.leader_changes.suspect(DYING)
        await asyncio.sleep(VERDICT_SECONDS * 0.6)
        reborn = replace(watched.metadata.brokers[DYING], broker_epoch=BrokerEpoch(20))
        watched.metadata.brokers = {**watched.metadata.brokers, DYING: reborn}
        watched.leader_changes.suspect(DYING)
        await asyncio.sleep(VERDICT_SECONDS * 0.45)
        assert not await watched.is_responded()
        assert await watched.is_responded()

    checked(scenario)


def test_after_its_end_nobody_is_waited_for() -> None:
    async def scenario(watched: Watched) -> None:
        watched.leader_changes.suspect(DYING)
        watched.leader_changes.stop()
        assert await watched.is_responded()
        watched.push(leader=DYING)
        watched.leader_changes.suspect(DYING)
        watched.leader_changes.suspect(NEXT)
        assert await watched.is_responded()
        reborn = replace(watched.metadata.brokers[DYING], broker_epoch=BrokerEpoch(20))
        watched.metadata.brokers = {**watched.metadata.brokers, DYING: reborn}
        watched.leader_changes.suspect(DYING)
        assert await watched.is_responded()

    checked(scenario)


def test_nobody_waits_for_a_broker_that_leads_nothing_or_is_known_to_be_gone() -> None:
    async def scenario(watched: Watched) -> None:
        watched.leader_changes.suspect(NEXT)
        assert await watched.is_responded()
        watched.push(leader=DYING, fenced=frozenset({DYING}))
        watched.leader_changes.suspect(DYING)
        assert await watched.is_responded()

    checked(scenario)


def test_a_broker_that_left_is_told_for_a_while_and_one_that_was_never_seen_live_is_not() -> None:
    async def scenario(watched: Watched) -> None:
        assert watched.reported() == [DYING, NEXT]
        watched.push(leader=NEXT, fenced=frozenset({DYING}))
        watched.now_ms += REPORTED_MS
        assert watched.reported() == [DYING, NEXT]
        watched.now_ms += 1
        assert watched.reported() == [NEXT]
        watched.push(leader=NEXT)
        assert watched.reported() == [DYING, NEXT]
        watched.leader_changes = LeaderChanges(
            watched.metadata, scheduler=asyncio.get_running_loop(), clock=lambda: watched.now_ms
        )
        watched.push(leader=NEXT, fenced=frozenset({DYING}))
        assert watched.reported() == [NEXT]

    checked(scenario)
