"""S17: a slice from a backup older than a topic's growth does not know partitions whose records are
on brokers' disks. Grown again, they are not begun as if they were new: the longest log leads."""

import copy

import pytest
from tidemark_operator.api.kinds import PARTITION_SLICE, Object
from tidemark_operator.controller.core.placement import place
from tidemark_operator.controller.service import NoLiveReplica, StateChange
from tidemark_protocol.controller_messages import ReplicaReport
from tidemark_protocol.ids import BrokerId, LeaderEpoch, Offset

from tests.support.controller_harness import ORDERS, POOL, Harness
from tests.support.controller_steps import grow, successor
from tests.support.controller_values import shown
from tests.support.metadata_brokers import MetadataBroker, metadata_harness
from tests.support.waiting import run


def logs(*ends: tuple[int, int]) -> tuple[ReplicaReport, ...]:
    """Of the partitions from 0 on: last epoch and log end."""
    return tuple(
        ReplicaReport(ORDERS, number, LeaderEpoch(epoch), Offset(end), Offset(0))
        for number, (epoch, end) in enumerate(ends)
    )


def restore(harness: Harness, saved: Object) -> None:
    own = ("apiVersion", "kind", "metadata")
    fields = {name: copy.deepcopy(saved[name]) for name in saved if name not in own}
    harness.store.touch(PARTITION_SLICE, "orders-0", **fields)


async def restored_over(*held: tuple[ReplicaReport, ...]) -> Harness:
    """A topic of one partition was backed up, grew to two, and everything stopped. The slice is
    put back, and brokers start over their logs, with all that stopping in order proves."""
    harness = await metadata_harness(len(held))
    await harness.service.create_topic(
        POOL, harness.topic_state(), place(1, 3, [BrokerId(i) for i in range(3)])
    )
    saved = copy.deepcopy(harness.stored_slice())
    await grow(harness, 1, 1, over=len(held))
    restore(harness, saved)
    await successor(harness, 2)
    for number, replicas in enumerate(held):
        again = MetadataBroker(harness, BrokerId(number), f"{number}-b", replicas=replicas)
        await again.register(clean_stop_epoch=harness.brokers[number].epoch)
        harness.brokers[number] = again
    await harness.advance(300, *harness.brokers)
    return harness


def test_a_partition_that_brokers_have_logs_of_is_led_by_the_longest_when_grown_again() -> None:
    async def scenario() -> None:
        harness = await restored_over(
            logs((0, 9), (0, 90)), logs((0, 9), (0, 10)), logs((0, 9), (0, 80))
        )
        await grow(harness, 1, 2)  # 1 comes first by placement
        assert shown(harness.partition(1)) == "leader -1@-1 epoch 1 isr [] eligible [] pe 1"
        await harness.advance(300, *harness.brokers)
        state = harness.partition(1)
        assert (state.leader, state.leader_epoch, state.in_sync_ids) == (0, 2, {0})
        new = harness.partition(2)
        assert (new.leader, new.leader_epoch, new.in_sync_ids) == (2, 0, {0, 1, 2})
        view = harness.service.topic(POOL, ORDERS)
        assert view is not None
        (notice,) = view.notices
        assert notice.startswith("partition 1: its PartitionSlice was older than the brokers' logs")
        assert "broker 0 is leader since leader epoch 2 and offset 90" in notice

    run(scenario)


def test_a_log_on_a_broker_that_the_partition_is_not_placed_on_counts_and_is_kept() -> None:
    async def scenario() -> None:
        none = logs((0, 9))
        harness = await restored_over(none, none, none, logs((0, 9), (0, 50)))
        with pytest.raises(NoLiveReplica, match="brokers 0, 1, 2 have not reported"):
            await grow(harness, 1, 1)  # since 3 did
        await harness.advance(300, *harness.brokers)
        await grow(harness, 1, 1)
        await harness.advance(300, *harness.brokers)
        state = harness.partition(1)
        assert (state.leader, state.replicas, state.removing_replicas) == (3, (1, 2, 0, 3), (3,))
        assert state.leader_epoch == 2

    run(scenario)


def test_after_a_take_over_growth_waits_until_every_live_broker_said_what_logs_it_has() -> None:
    """They told the controller before this one, and say it again only when they are asked."""

    async def scenario() -> None:
        harness = await restored_over(
            logs((0, 9), (0, 90)), logs((0, 9), (0, 10)), logs((0, 9), (0, 80))
        )
        await successor(harness, 3)
        with pytest.raises(NoLiveReplica, match="brokers 0, 1, 2 have not reported their logs"):
            await grow(harness, 1, 1)
        harness.changes.clear()
        await harness.advance(300, *harness.brokers)
        assert StateChange("broker", POOL, "2") in harness.changes  # the Topic looks again
        await grow(harness, 1, 1)
        await harness.advance(300, *harness.brokers)
        assert (harness.partition(1).leader, harness.partition(1).in_sync_ids) == (0, {0})

    run(scenario)


def test_a_controller_that_knew_partitions_before_their_slice_was_put_back_asks_too() -> None:
    """No broker has reported anything: what was durable once is enough."""

    async def scenario() -> None:
        harness = await metadata_harness()
        await harness.create()
        saved = copy.deepcopy(harness.stored_slice())
        await grow(harness, 1, 1)
        await harness.advance(100, *harness.brokers)
        for number, end in enumerate((90, 10, 80)):
            harness.brokers[number].replicas = logs((0, 9), (0, end))
        restore(harness, saved)
        await harness.service.update_topic(
            POOL, harness.topic_state(**{"min.insync.replicas": "1"})
        )
        with pytest.raises(NoLiveReplica, match="have not reported"):
            await grow(harness, 1, 1)
        await harness.advance(300, *harness.brokers)
        await grow(harness, 1, 1)
        await harness.advance(300, *harness.brokers)
        assert (harness.partition(1).leader, harness.partition(1).in_sync_ids) == (0, {0})

    run(scenario)


def test_retained_data_that_is_adopted_with_more_partitions_is_asked_after_as_well() -> None:
    async def scenario() -> None:
        harness = await restored_over(
            logs((0, 9), (0, 90)), logs((0, 9), (0, 10)), logs((0, 9), (0, 80))
        )
        await harness.service.delete_topic(POOL, ORDERS, retain=True)
        ids = [broker.broker_id for broker in harness.brokers]
        await harness.service.create_topic(
            POOL, harness.topic_state(2), place(2, 3, ids), had_slices=True
        )
        await harness.advance(300, *harness.brokers)
        assert (harness.partition(1).leader, harness.partition(1).in_sync_ids) == (0, {0})

    run(scenario)
