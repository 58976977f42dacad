"""What a topic costs beside many others, and who waits for whom: counted, not timed."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from tidemark_operator.api.kinds import PARTITION_SLICE
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller import slice_changes
from tidemark_operator.controller.commands import delete_topic
from tidemark_operator.controller.core.metadata_image import MetadataImage
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.service import ControllerService, SliceMissing, StateChange
from tidemark_protocol.ids import ControllerEpoch, LeaderEpoch, PartitionEpoch
from tidemark_protocol.partition_state import TopicState

from tests.support.controller_harness import POOL, evaluate
from tests.support.controller_values import partition
from tests.support.waiting import run
from tests.unit.operator.controller.many_topics import (
    caught_up,
    creation,
    decisions,
    topic_id,
    with_topics,
)

MANY = tuple(f"old{number}" for number in range(30))
NEW = tuple(f"new{number}" for number in range(12))


def test_topics_are_made_together_and_cost_what_they_cost_alone() -> None:
    async def scenario() -> None:
        costs = []
        for others in ((), MANY):
            harness, store = await with_topics(*others)
            store.gate.clear()
            made = asyncio.gather(*(creation(harness, name) for name in NEW))
            await evaluate()
            assert store.waiting == [f"{name}-0" for name in NEW]
            store.gate.set()
            await made
            costs.append(tuple(store.calls))
        assert costs[0] == costs[1] == tuple(f"write {name}-0" for name in NEW)

    run(scenario)


def test_brokers_hear_of_topics_that_became_durable_together_in_one_push() -> None:
    async def scenario() -> None:
        harness, store = await with_topics()
        store.gate.clear()
        made = asyncio.gather(*(creation(harness, name) for name in NEW))
        await evaluate()
        store.gate.set()
        await made
        await evaluate()
        poll = harness.brokers[0].poll
        assert poll is not None
        push = poll.result().push
        assert push is not None
        assert [pushed.topic.topic for pushed in push.topics] == list(NEW)

    run(scenario)


def test_a_push_looks_at_what_changed_and_at_nothing_else() -> None:
    image = MetadataImage(ControllerEpoch(1), deleted_retained=10)

    def change(name: str, epoch: int) -> None:
        state = replace(partition("0@1", leader="0@1"), partition_epoch=PartitionEpoch(epoch))
        topic = TopicState(name, topic_id(name), 1, 1)
        image.set_partitions(topic, (state,), is_retained=False)

    for name in MANY:
        change(name, 0)
    applied = image.version
    change(MANY[3], 1)
    change(MANY[1], 1)
    for name in MANY[4:-1]:  # whoever looks at these meets an error
        image._topics[topic_id(name)].versions = None  # type: ignore[assignment]
    push = image.push_for(ControllerEpoch(1), applied)
    assert push is not None
    assert [pushed.topic.topic for pushed in push.topics] == [MANY[3], MANY[1]]


def test_a_push_tells_first_who_was_elected() -> None:
    """A broker that takes up ten thousand states leads what it is to lead after a third of them."""
    image = MetadataImage(ControllerEpoch(1), deleted_retained=10)
    topics = [TopicState(name, topic_id(name), 3, 1) for name in MANY[:2]]

    def set_all(*leader_epochs: int, partition_epoch: int) -> None:
        states = tuple(
            replace(
                partition("0@1", leader="0@1"),
                partition=number,
                leader_epoch=LeaderEpoch(leader_epoch),
                partition_epoch=PartitionEpoch(partition_epoch),
            )
            for number, leader_epoch in enumerate(leader_epochs)
        )
        for topic in topics:
            image.set_partitions(topic, states, is_retained=False)

    def reported(since: int) -> list[tuple[str, list[int]]]:
        push = image.push_for(ControllerEpoch(1), since)
        assert push is not None
        return [(each.topic.topic, [s.partition for s in each.partitions]) for each in push.topics]

    set_all(0, 0, 0, partition_epoch=0)
    applied = image.version
    set_all(0, 1, 0, partition_epoch=1)
    old0, old1 = MANY[:2]
    assert reported(applied) == [(old0, [1]), (old1, [1]), (old0, [0, 2]), (old1, [0, 2])]
    assert reported(0) == [(old0, [0, 1, 2]), (old1, [0, 1, 2])]  # in full: all were elected once
    applied = image.version
    set_all(0, 1, 0, partition_epoch=2)
    assert reported(applied) == [(old0, [0, 1, 2]), (old1, [0, 1, 2])]  # nobody was elected


def test_an_update_settles_its_own_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        harness, _ = await with_topics(*MANY)
        evaluated = _settled_slices(monkeypatch)
        topic = TopicState(MANY[0], topic_id(MANY[0]), 1, 3, config={"retention.ms": "1000"})
        await harness.service.update_topic(POOL, topic)
        assert evaluated == [f"{MANY[0]}-0"]

    run(scenario)


def test_elections_come_before_what_only_leaves_an_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(slice_changes, "PARTITIONS_AT_A_TIME", 1)
        harness, store = await with_topics(*MANY[:3], partitions=1)
        await creation(harness, "wide", partitions=2)  # of its partitions broker 1 leads one
        await caught_up(harness)
        store.log.clear()
        leader = harness.brokers[1]
        await decisions(harness).fence([(leader.broker_id, leader.epoch)], "test")
        slices = [name for name in store.log if name.endswith("-0")]
        assert slices == ["wide-0", "old0-0", "old1-0", "old2-0"]

    run(scenario)


def test_reconcilers_hear_of_an_election_when_all_are_made() -> None:
    async def scenario() -> None:
        harness, store = await with_topics(*MANY[:3])
        heard: list[tuple[StateChange, int]] = []
        harness.changes.clear()
        written = store.log
        decisions(harness)._announcements._on_change = lambda change: heard.append(
            (change, len([name for name in written if name.startswith("old")]))
        )
        leader = harness.brokers[0]
        await decisions(harness).fence([(leader.broker_id, leader.epoch)], "test")
        assert [count for change, count in heard if change.kind == "topic"] == [3, 3, 3]

    run(scenario)


def test_the_loop_has_its_turn_while_a_large_pool_is_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(slice_changes, "PARTITIONS_AT_A_TIME", 12)  # 3 of these slices
        harness, _ = await with_topics(*MANY)
        evaluated = _settled_slices(monkeypatch)
        at_a_time: list[int] = []
        settling = asyncio.create_task(decisions(harness).evaluate())
        while not settling.done():
            before = len(evaluated)
            await asyncio.sleep(0)
            at_a_time.append(len(evaluated) - before)
        assert sum(at_a_time) == len(MANY)
        assert max(at_a_time) == 3

    run(scenario)


def test_the_loop_has_its_turn_while_slices_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("tidemark_operator.controller.takeover.PARTITIONS_AT_A_TIME", 3)
        harness, _ = await with_topics(*MANY)
        successor: ControllerService = harness.another_controller()
        loading = asyncio.create_task(successor.load(ControllerEpoch(2)))
        known = [0]
        while not loading.done():
            await asyncio.sleep(0)
            pool = successor._pools.get(POOL)
            known.append(0 if pool is None else len(pool.decisions.state.slices))
        assert known[-1] == len(MANY)
        assert max(after - before for before, after in pairwise(known)) == 3
        assert successor.is_leading

    run(scenario)


def test_a_fence_waits_for_one_slice_of_a_topic_that_is_being_made() -> None:
    async def scenario() -> None:
        harness, store = await with_topics("orders")
        store.gate.clear()
        making = asyncio.create_task(creation(harness, "wide", partitions=128 * 4))
        await evaluate()
        leader = harness.brokers[0]
        fencing = asyncio.create_task(
            decisions(harness).fence([(leader.broker_id, leader.epoch)], "test")
        )
        await evaluate()
        store.gate.set()
        await asyncio.gather(making, fencing)
        slices = [name for name in store.log if name[-2:] in {"-0", "-1", "-2", "-3"}]
        before_the_second = slices[: slices.index("wide-1")]
        assert before_the_second.count("wide-0") == 2, slices  # made, and led by another
        assert "orders-0" in before_the_second
        view = harness.service.topic(POOL, topic_id("wide"))
        assert view is not None
        assert all(state.leader != leader.broker_id for state in view.partitions)
        assert view.topic.partition_count == len(view.partitions) == 512

    run(scenario)


def test_a_small_topic_waits_for_one_slice_of_a_large_one() -> None:
    async def scenario() -> None:
        harness, store = await with_topics()
        store.gate.clear()
        wide = asyncio.create_task(creation(harness, "wide", partitions=128 * 4))
        await evaluate()
        small = asyncio.create_task(creation(harness, "small"))
        await evaluate()
        assert store.waiting == ["wide-0", "small-0"]
        store.gate.set()
        await asyncio.gather(wide, small)

    run(scenario)


def test_a_topic_is_deleted_once_it_is_made() -> None:
    """Else slices that are made after it would bring it back (S12)."""

    async def scenario() -> None:
        harness, store = await with_topics()
        store.gate.clear()
        wide = asyncio.create_task(creation(harness, "wide", partitions=300))
        await evaluate()
        deleting = asyncio.create_task(
            harness.service.delete_topic(POOL, topic_id("wide"), retain=False, topic="wide")
        )
        await evaluate()
        store.gate.set()
        await asyncio.gather(wide, deleting)
        assert harness.service.topic(POOL, topic_id("wide")) is None
        left = [name for _, _, name in store.objects if name.startswith("wide")]
        assert left == []

    run(scenario)


def test_a_slice_that_vanishes_while_others_are_made_is_not_made_anew_as_empty() -> None:
    """S12, S17: what was durable once is never begun again below its epochs."""

    async def scenario() -> None:
        harness, store = await with_topics()
        store.gate.clear()
        wide = asyncio.create_task(creation(harness, "wide", partitions=300))
        await evaluate()
        store.gate.set()
        while "wide-1" not in store.waiting:
            await asyncio.sleep(0)
            if "wide-0" in store.log:
                store.gate.clear()
        confirming = asyncio.create_task(harness.service.confirm_slices(POOL, topic_id("wide")))
        del store.objects[PARTITION_SLICE.kind, "shop", "wide-0"]
        await evaluate()
        store.gate.set()
        with pytest.raises(SliceMissing):
            await wide
        await confirming
        assert (PARTITION_SLICE.kind, "shop", "wide-0") not in store.objects

    run(scenario)


def test_what_deletions_leave_is_swept_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(delete_topic, "SWEPT_AT_ONCE", 4)
        harness, store = await with_topics(*MANY)
        deleted = (
            harness.service.delete_topic(POOL, topic_id(name), retain=False, topic=name)
            for name in MANY
        )
        await asyncio.gather(*deleted)
        await caught_up(harness)
        store.log.clear()
        await decisions(harness).sweep()
        assert len(store.log) == 4
        while decisions(harness).is_sweep_due:
            await decisions(harness).sweep()
        assert not [key for key in store.objects if key[0] == PARTITION_SLICE.kind]

    run(scenario)


def test_topics_that_came_and_went_leave_nothing_behind() -> None:
    async def scenario() -> None:
        harness, _ = await with_topics()
        for turn in range(3):
            for name in NEW:
                await creation(harness, f"{name}-{turn}")
            await caught_up(harness)
            for name in NEW:
                topic = f"{name}-{turn}"
                await harness.service.delete_topic(POOL, topic_id(topic), retain=False, topic=topic)
            await caught_up(harness)
            await harness.tick()
        assert _retained(decisions(harness).state, decisions(harness).image) == {}
        assert len(decisions(harness).topic_locks._locks) == 0

    run(scenario)


def _retained(state: PoolState, image: MetadataImage) -> dict[str, object]:
    known = {
        "slices": len(state.slices),
        "topics": state.slices._by_topic,
        "names": state.slices._ids_by_topic_name,
        "leaders": +state.slices.leaders(),
        "floors": state.held._floors,
        "leaderless": state.leaderless_since,
        "tombstones": state.tombstones,
        "leftovers": state.leftovers,
        "pushed": image._topics,
        "pushed names": image._ids_by_name,
        "deletions": image._deleted,
    }
    return {name: found for name, found in known.items() if found}


def _settled_slices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of those that are decided from now on."""
    names: list[str] = []
    original = PoolState.slice_after_elections

    def recorded(self: PoolState, value: PartitionSlice, *rest: object) -> PartitionSlice:
        names.append(value.name)
        return original(self, value, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(PoolState, "slice_after_elections", recorded)
    return names


def test_nothing_is_kept_of_a_topic_that_is_deleted() -> None:
    """Its view lived on, with its slices, until the next controller: 4 KB a topic."""

    async def scenario() -> None:
        harness, _ = await with_topics(*MANY)
        pool = decisions(harness)
        assert len(pool.topic_views()) == len(pool._views) == len(MANY)
        for name in MANY:
            await harness.service.delete_topic(POOL, topic_id(name), retain=False)
        assert (len(pool.topic_views()), len(pool._views)) == (0, 0)

    run(scenario)
