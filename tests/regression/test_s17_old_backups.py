"""S17: a slice from an old backup is never led from; it is rebuilt above all that brokers hold."""

import copy
from dataclasses import replace
from typing import cast

from tidemark_operator.api.kinds import PARTITION_SLICE, Object
from tidemark_operator.controller.service import ProbeVerdict
from tidemark_protocol.controller_messages import IsrProposal, ReplicaReport
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from tidemark_protocol.partition_state import Member, PartitionState

from tests.support.controller_harness import ORDERS, POOL, FakeBroker, Harness, evaluate
from tests.support.controller_steps import successor
from tests.support.controller_values import shown
from tests.support.metadata_brokers import MetadataBroker, metadata_harness
from tests.support.waiting import run


def on_disk(last_epoch: int, log_end: int, high_watermark: int = 0) -> tuple[ReplicaReport, ...]:
    report = ReplicaReport(
        ORDERS, 0, LeaderEpoch(last_epoch), Offset(log_end), Offset(high_watermark)
    )
    return (report,)


def backup(harness: Harness) -> Object:
    return copy.deepcopy(harness.stored_slice())


def restore(harness: Harness, saved: Object) -> None:
    own = ("apiVersion", "kind", "metadata")
    fields = {name: copy.deepcopy(saved[name]) for name in saved if name not in own}
    harness.store.touch(PARTITION_SLICE, "orders-0", **fields)


def proposed(state: PartitionState, in_sync: tuple[Member, ...]) -> IsrProposal:
    return IsrProposal(ORDERS, 0, state.leader_epoch, state.partition_epoch, in_sync)


async def fail_over(harness: Harness) -> None:
    """Broker 0, the leader, dies; 1 leads in epoch 1. Then 0 comes back as a new life."""
    await harness.kill(harness.brokers[0])
    await harness.advance(200, *harness.brokers[1:])
    assert harness.partition().leader_epoch == 1


def hold(harness: Harness, **ends: tuple[int, int]) -> None:
    for name, end in ends.items():
        harness.brokers[int(name[1:])].replicas = on_disk(*end)


def test_a_slice_restored_under_running_brokers_is_rebuilt_above_them_from_the_longest_log() -> (
    None
):
    async def scenario() -> None:
        harness = await metadata_harness()
        await harness.create()
        saved = backup(harness)  # broker 0 leads in epoch 0, all in sync
        await fail_over(harness)
        again = MetadataBroker(harness, BrokerId(0), "0-b", replicas=on_disk(0, 40))
        await again.register()
        harness.brokers[0] = again
        hold(harness, b1=(1, 90), b2=(1, 80))
        restore(harness, saved)
        await successor(harness)
        await harness.advance(300, *harness.brokers)
        state = harness.partition()
        assert (state.leader, state.leader_epoch, state.partition_epoch) == (1, 3, 4)
        assert state.in_sync_ids == {1}
        assert all(cast(MetadataBroker, broker).state() == state for broker in harness.brokers)
        view = harness.service.topic(POOL, ORDERS)
        assert view is not None
        assert view.notices == (
            "partition 0: its PartitionSlice was older than the brokers' logs (restored from a"
            " backup?), so it was rebuilt; broker 1 is leader since leader epoch 3 and offset 90;"
            " 0 records past this offset in other logs are lost, 0 of them below a high watermark",
        )

    run(scenario)


def test_nobody_is_made_leader_by_a_slice_before_live_replicas_said_what_they_hold() -> None:
    """The old backup says that broker 2 is in sync; it has left since, and lacks what 1 and 0
    committed. The successor meets a dead leader first of all."""

    async def scenario() -> None:
        harness = await metadata_harness()
        await harness.create()
        saved = backup(harness)
        leader = harness.brokers[0]
        state = harness.partition()
        await leader.alter(proposed(state, state.in_sync_replicas[:2]))
        for broker in harness.brokers:
            await broker.catch_up()
        hold(harness, b1=(0, 90), b2=(0, 10))
        restore(harness, saved)
        await successor(harness)
        harness.probe.verdicts[leader.incarnation] = ProbeVerdict.REFUSED
        harness.service.suspect(POOL, BrokerId(0), "its pod vanished")
        await evaluate()
        assert shown(harness.partition()).startswith("leader -1@-1 epoch 1 ")
        await harness.advance(300, *harness.brokers[1:])
        assert not harness.partition().has_leader  # 0 may have more: with one missing, nobody
        again = MetadataBroker(harness, BrokerId(0), "0-b", replicas=on_disk(0, 70))
        await again.register()
        harness.brokers[0] = again
        await harness.advance(300, *harness.brokers)
        assert harness.partition().leader == 1

    run(scenario)


def test_leadership_does_not_go_back_by_a_slice_before_live_replicas_said_what_they_hold() -> None:
    """Were it an old backup, somebody may have led in the next epoch since (I11)."""

    async def scenario() -> None:
        harness = await metadata_harness()
        await harness.create()
        await fail_over(harness)
        harness.brokers[0] = MetadataBroker(harness, BrokerId(0), "0-b", replicas=on_disk(0, 40))
        await harness.brokers[0].register()
        await harness.advance(200, *harness.brokers)
        state = harness.partition()
        await harness.brokers[1].alter(
            proposed(
                state, (*state.in_sync_replicas, Member(BrokerId(0), harness.brokers[0].epoch))
            )
        )
        assert harness.partition().in_sync_ids == {0, 1, 2}
        await successor(harness)
        by_an_old_slice = await harness.service.elect_leaders(POOL, ORDERS, (0,), unclean=False)
        await harness.service._pools[POOL].decisions.balance()
        assert by_an_old_slice == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        assert harness.partition().leader == 1
        await harness.advance(300, *harness.brokers)
        now = await harness.service.elect_leaders(POOL, ORDERS, (0,), unclean=False)
        assert (now, harness.partition().leader) == ({0: ErrorCode.NONE}, 0)

    run(scenario)


def test_a_restarted_brokers_log_shows_that_the_slice_is_old() -> None:
    """Nobody lives who remembers the metadata: all brokers start anew over their logs."""

    async def scenario() -> None:
        harness = await metadata_harness()
        await harness.create()
        saved = backup(harness)
        await fail_over(harness)
        restore(harness, saved)
        await successor(harness)
        for number, end in enumerate([(0, 40), (1, 90), (1, 80)]):
            again = MetadataBroker(harness, BrokerId(number), f"{number}-b", replicas=on_disk(*end))
            await again.register(clean_stop_epoch=harness.brokers[number].epoch)
            harness.brokers[number] = again
        await harness.advance(300, *harness.brokers)
        state = harness.partition()
        assert (state.leader, state.in_sync_ids) == (1, {1})
        assert state.leader_epoch > 1

    run(scenario)


def test_a_replica_that_the_old_slice_does_not_know_counts_and_is_kept() -> None:
    async def scenario() -> None:
        harness = await metadata_harness(4)
        await harness.create()
        saved = backup(harness)
        moved = copy.deepcopy(saved)
        (state,) = moved["partitions"]
        members = [{"id": i, "epoch": i + 1} for i in (3, 1, 2)]
        state.update(replicas=[3, 1, 2], isr=members, leader=3, leaderBrokerEpoch=4)
        state.update(leaderEpoch=4, partitionEpoch=9)
        restore(harness, moved)
        await successor(harness)
        await harness.advance(200, *harness.brokers)
        assert harness.partition().leader == 3
        hold(harness, b3=(4, 90), b1=(4, 80), b2=(4, 80))
        restore(harness, saved)
        await successor(harness, 3)
        await harness.advance(300, *harness.brokers)
        state_now = harness.partition()
        assert (state_now.leader, state_now.replicas) == (3, (0, 1, 2, 3))
        assert state_now.removing_replicas == (3,)
        assert state_now.leader_epoch == 6

    run(scenario)


def test_a_running_controller_notices_that_its_own_slice_was_put_back() -> None:
    """No broker has said anything yet: what was durable once is enough."""

    async def scenario() -> None:
        harness = await metadata_harness()
        await harness.create()
        saved = backup(harness)
        await fail_over(harness)
        hold(harness, b1=(1, 90), b2=(1, 80))
        again = MetadataBroker(harness, BrokerId(0), "0-b", replicas=on_disk(0, 40))
        await again.register()
        harness.brokers[0] = again
        restore(harness, saved)
        await harness.service.update_topic(
            POOL, harness.topic_state(**{"min.insync.replicas": "1"})
        )
        await harness.advance(300, *harness.brokers)
        assert (harness.partition().leader, harness.partition().leader_epoch) == (1, 3)

    run(scenario)


def test_a_deposed_controllers_late_write_is_read_and_not_rebuilt() -> None:
    """Brokers heard of it before the successor did: they hold more than it knows, and so does
    the store."""

    async def scenario() -> None:
        harness = await metadata_harness()
        await harness.create()
        await successor(harness)
        await harness.advance(100, *harness.brokers)
        (state,) = copy.deepcopy(harness.stored_slice()["partitions"])
        state.update(leader=1, leaderBrokerEpoch=2, leaderEpoch=1, partitionEpoch=1)
        harness.store.touch(PARTITION_SLICE, "orders-0", partitions=[state])
        late = replace(
            harness.partition(),
            leader=BrokerId(1),
            leader_broker_epoch=BrokerEpoch(2),
            leader_epoch=LeaderEpoch(1),
            partition_epoch=harness.partition().partition_epoch + 1,
        )
        broker = harness.brokers[1]
        assert isinstance(broker, MetadataBroker)
        broker.cache.apply_partition(ORDERS, late)
        broker.cache.apply_partition(ORDERS, harness.partition())  # an older push
        assert len(broker.cache.held_epochs) == 1
        await broker.catch_up()
        await harness.advance(200, *harness.brokers)
        assert harness.partition() == late
        view = harness.service.topic(POOL, ORDERS)
        assert view is not None
        assert view.notices == ()

    run(scenario)


def test_a_leader_that_holds_more_than_the_slice_changes_nothing_there() -> None:
    async def scenario() -> None:
        harness = await metadata_harness()
        await harness.create()
        saved = backup(harness)
        await fail_over(harness)
        state = harness.partition()
        restore(harness, saved)
        await successor(harness)
        leader: FakeBroker = harness.brokers[1]
        response = await leader.alter(proposed(state, state.in_sync_replicas))
        assert response.answers[0].error is ErrorCode.NOT_CONTROLLER
        assert harness.stored_slice()["partitions"] == saved["partitions"]

    run(scenario)
