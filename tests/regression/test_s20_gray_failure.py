"""S20: a leader that lives but cannot write loses leadership, without wandering.

Only its own append and disk-probe ages count: that a follower stalls, the lag rule judges. One
move for each partition in a lag window.
"""

from typing import Any

from tidemark_operator.api.kinds import PARTITION_SLICE

from tests.support.controller_harness import FakeBroker, Harness, evaluate
from tests.support.controller_values import shown
from tests.support.waiting import run


async def heard(harness: Harness, ages: dict[int, dict[str, int]], ms: int = 500) -> None:
    """Everybody polls, with these ages, and time passes."""
    polls = [
        (broker, broker.heartbeat(**_fields(ages.get(broker.broker_id, {}))))
        for broker in harness.brokers
    ]
    await evaluate()
    for _ in range(ms // 50):
        await harness.tick()
    for broker, poll in polls:
        broker.apply(await poll)


def _fields(ages: dict[str, int]) -> dict[str, Any]:
    return {f"{name}_age_ms": age_ms for name, age_ms in ages.items()}


async def three_brokers(**config: str) -> Harness:
    harness = await Harness(balance_interval_ms=10**9).start(3)
    await harness.create(**config)
    assert harness.partition().leader == 0
    return harness


def test_a_leader_whose_disk_hangs_loses_leadership_and_stays_in_sync() -> None:
    async def scenario() -> None:
        harness = await three_brokers()
        await heard(harness, {0: {"disk_probe": 2999}})
        assert harness.partition().leader == 0
        await heard(harness, {0: {"disk_probe": 3499}})
        assert shown(harness.partition()) == "leader 1@2 epoch 1 isr [0@1 1@2 2@3] eligible [] pe 1"

    run(scenario)


def test_an_append_that_does_not_end_counts_as_the_probe_does() -> None:
    async def scenario() -> None:
        harness = await three_brokers()
        await heard(harness, {0: {"oldest_append": 3000}})
        assert harness.partition().leader == 1

    run(scenario)


def test_a_follower_that_cannot_write_costs_the_leader_nothing() -> None:
    async def scenario() -> None:
        harness = await three_brokers()
        before = harness.partition()
        for _ in range(5):
            await heard(harness, {1: {"disk_probe": 9000}, 2: {"oldest_append": 9000}})
        assert harness.partition() == before

    run(scenario)


def test_a_move_whose_outcome_was_unknown_is_the_one_of_its_lag_window() -> None:
    """It was put off, and stored all the same; else it is tried again at once."""

    async def scenario() -> None:
        harness = await Harness(balance_interval_ms=10**9, write_attempts=1).start(3)
        await harness.create(**{"replica.lag.time.max.ms": "4000"})
        harness.store.faults[PARTITION_SLICE.kind] = ["lost"]
        await heard(harness, {0: {"disk_probe": 3000}})
        assert harness.partition().leader == 0
        harness.store.faults[PARTITION_SLICE.kind] = ["landed"]
        await heard(harness, {0: {"disk_probe": 3500}})
        assert harness.partition().leader == 1
        await heard(harness, {1: {"disk_probe": 3000}}, 1500)
        assert harness.partition().leader == 1
        await heard(harness, {1: {"disk_probe": 4500}}, 3000)
        await heard(harness, {1: {"disk_probe": 7500}})
        assert harness.partition().leader == 0

    run(scenario)


def test_one_move_in_a_lag_window_although_the_next_leaders_disk_hangs_too() -> None:
    async def scenario() -> None:
        harness = await three_brokers(**{"replica.lag.time.max.ms": "4000"})
        await heard(harness, {0: {"disk_probe": 3000}})
        assert harness.partition().leader == 1
        await heard(harness, {1: {"disk_probe": 3000}}, 1500)
        await heard(harness, {1: {"disk_probe": 4500}}, 1500)
        assert harness.partition().leader == 1
        await heard(harness, {1: {"disk_probe": 6000}}, 1500)
        await heard(harness, {1: {"disk_probe": 7500}})
        assert harness.partition().leader == 0

    run(scenario)


def test_where_everybody_is_stalled_nothing_moves() -> None:
    async def scenario() -> None:
        harness = await three_brokers()
        before = harness.partition()
        stalled = {number: {"disk_probe": 5000} for number in range(3)}
        await heard(harness, {1: stalled[1], 2: stalled[2]})
        for _ in range(4):
            await heard(harness, stalled)
        assert harness.partition() == before

    run(scenario)


def test_nobody_who_cannot_write_is_chosen_while_another_can() -> None:
    async def scenario() -> None:
        harness = await three_brokers()
        await heard(harness, {1: {"disk_probe": 5000}})
        await harness.kill(harness.brokers[0])
        assert harness.partition().leader == 2
        stored = harness.partition()
        await harness.kill(harness.brokers[2])
        assert stored.leader_epoch + 1 == harness.partition().leader_epoch
        assert harness.partition().leader == 1  # better a slow leader than none

    run(scenario)


def test_the_preferred_leader_is_not_restored_while_its_disk_hangs() -> None:
    async def scenario() -> None:
        harness = await three_brokers()
        await heard(harness, {0: {"disk_probe": 3000}})
        assert harness.partition().leader == 1
        await heard(harness, {0: {"disk_probe": 4000}})
        harness.service._balance_due_ms = 0
        await harness.tick()
        await evaluate()
        assert harness.partition().leader == 1
        await heard(harness, {0: {"disk_probe": 100}})
        harness.service._balance_due_ms = 0
        await harness.tick()
        assert harness.partition().leader == 0

    run(scenario)


def test_a_stalled_leader_that_is_alone_in_sync_goes_on() -> None:
    async def scenario() -> None:
        harness = await three_brokers()
        for broker in harness.brokers[1:]:
            await harness.kill(broker)
        only: list[FakeBroker] = harness.brokers[:1]
        harness.brokers = only
        before = harness.partition()
        await heard(harness, {0: {"disk_probe": 9000}})
        assert harness.partition() == before

    run(scenario)
