"""The work for pages is bounded: by the turn of the loop, by what changed, by who looks."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tidemark_operator.manager.web.live_pools import (
    CHANGE_SECONDS,
    MAX_CREDIT,
    LivePool,
    LivePools,
    Pace,
    UnknownPool,
)
from tidemark_operator.manager.web.page_stream import PageStream

from tests.support.controller_harness import POOL, Harness, StateChange
from tests.support.waiting import eventually
from tests.support.waiting import run as run_scenario
from tests.unit.operator.controller import long_turns
from tests.unit.operator.controller.many_topics import with_topics


def pools_of(harness: Harness) -> LivePools:
    return LivePools(harness.service, wall_clock_ms=lambda: 0)


async def read(live: LivePool) -> bytes:
    return b"".join([body async for body in live.begin(PageStream(), "")])


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    run_scenario(scenario)


def test_turns_do_not_grow_with_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted are calls of this room: the controller makes a topic's view in one turn."""
    monkeypatch.setattr(long_turns, "OURS", "manager/web")

    async def longest(topics: int, partitions: int) -> int:
        names = [f"topic-{number}" for number in range(topics)]
        harness, _ = await with_topics(*names, partitions=partitions)
        live_pools = pools_of(harness)
        with long_turns.counted_turns() as turns:
            live = await live_pools.open(POOL)
            body = await read(live)
        assert body.count(b'"head"') == topics
        await live_pools.close()
        await harness.service.step_down()
        return turns.longest

    async def scenario() -> None:
        few, many = await longest(60, 10), await longest(240, 10)
        assert many <= 1.2 * few
        wide, wider = await longest(1, 600), await longest(1, 2400)
        assert wider <= 1.2 * wide

    run(scenario)


def test_change_reads_only_the_topic_that_changed() -> None:
    async def scenario() -> None:
        harness, _ = await with_topics(*(f"topic-{number}" for number in range(20)))
        live_pools = pools_of(harness)
        live = await live_pools.open(POOL)
        await read(live)
        asked: list[str] = []
        topic = harness.service.topic

        def counted(pool: str, topic_id: str) -> object:
            asked.append(topic_id)
            return topic(pool, topic_id)  # type: ignore[arg-type]

        harness.service.topic = counted  # type: ignore[assignment, method-assign]
        live_pools.on_change(StateChange("topic", POOL, "topic-7"))
        await eventually(lambda: asked)
        assert asked == ["id-topic-7"]
        await live_pools.close()
        await harness.service.step_down()

    run(scenario)


def test_pool_that_no_page_shows_costs_nothing() -> None:
    async def scenario() -> None:
        harness = await Harness().start(1)
        live_pools = pools_of(harness)
        live_pools.on_change(StateChange("topic", POOL, "orders"))
        assert live_pools.is_idle
        with pytest.raises(UnknownPool, match="expected one of shop/default"):
            await live_pools.open("shop/none")
        await harness.service.step_down()

    run(scenario)


def test_pages_open_at_once_share_one_reading() -> None:
    async def scenario() -> None:
        harness, _ = await with_topics("orders")
        live_pools = pools_of(harness)
        opened = await asyncio.gather(*(live_pools.open_page(POOL) for _ in range(5)))
        assert len({id(live) for live, _ in opened}) == 1
        assert len({id(page) for _, page in opened}) == 5
        await live_pools.close()
        await harness.service.step_down()

    run(scenario)


def test_pace_is_ten_a_second_after_a_few() -> None:
    now_s, sent = 100.0, 0
    pace = Pace(now_s)
    while now_s < 110.0:
        sent += 1
        now_s += max(0.001, pace.pause_after(now_s))
    assert 10 / CHANGE_SECONDS <= sent <= 10 / CHANGE_SECONDS + MAX_CREDIT + 1
    first = Pace(0.0)
    assert [first.pause_after(0.0) for _ in range(MAX_CREDIT)] == [0.0] * MAX_CREDIT
