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


def backup(rig: Harness) -> Object:
    return copy.deepcopy(rig.stored_slice())


def restore(rig: Harness, saved: Object) -> None:
    own = ("apiVersion", "kind", "metadata")
    fields = {name: copy.deepcopy(saved[name]) for name in saved if name not in own}
    rig.store.touch(PARTITION_SLICE, "orders-0", **fields)


def proposed(state: PartitionState, in_sync: tuple[Member, ...]) -> IsrProposal:
    return IsrProposal(ORDERS, 0, state.leader_epoch, state.partition_epoch, in_sync)


async def fail_over(rig: Harness) -> None:
    """Broker 0, the leader, dies; 1 leads in epoch 1. Then 0 comes back as a new life."""
    await rig.kill(rig.brokers[0])
    await rig.advance(200, *rig.brokers[1:])
    assert rig.partition().leader_epoch == 1


def hold(rig: Harness, **ends: tuple[int, int]) -> None:
    for name, end in ends.items():
        rig.brokers[int(name[1:])].replicas = on_disk(*end)


def test_a_slice_restored_under_running_brokers_is_rebuilt_above_them_from_the_longest_log() -> (
    None
):
    async def scenario() -> None:
        rig = await metadata_harness()
        await rig.create()
        saved = backup(rig)  # broker 0 leads in epoch 0, all in sync
        await fail_over(rig)
        again = MetadataBroker(rig, BrokerId(0), "0-b", replicas=on_disk(0, 40))
        await again.register()
        rig.brokers[0] = again
        hold(rig, b1=(1, 90), b2=(1, 80))
        restore(rig, saved)
        await successor(rig)
        await rig.advance(300, *rig.brokers)
        state = rig.partition()
        assert (state.leader, state.leader_epoch, state.partition_epoch) == (1, 3, 4)
        assert state.in_sync_ids == {1}
        assert all(cast(MetadataBroker, broker).state() == state for broker in rig.brokers)
        view = rig.service.topic(POOL, ORDERS)
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
        rig = await metadata_harness()
        await rig.create()
        saved = backup(rig)
        leader = rig.brokers[0]
        state = rig.partition()
        await leader.alter(proposed(state, state.in_sync_replicas[:2]))
        for broker in rig.brokers:
            await broker.catch_up()
        hold(rig, b1=(0, 90), b2=(0, 10))
        restore(rig, saved)
        await successor(rig)
        rig.probe.verdicts[leader.incarnation] = ProbeVerdict.REFUSED
        rig.service.suspect(POOL, BrokerId(0), "its pod vanished")
        await evaluate()
        assert shown(rig.partition()).startswith("leader -1@-1 epoch 1 ")
        await rig.advance(300, *rig.brokers[1:])
        assert not rig.partition().has_leader  # 0 may have more: with one missing, nobody
        again = MetadataBroker(rig, BrokerId(0), "0-b", replicas=on_disk(0, 70))
        await again.register()
        rig.brokers[0] = again
        await rig.advance(300, *rig.brokers)
        assert rig.partition().leader == 1

    run(scenario)


def test_leadership_does_not_go_back_by_a_slice_before_live_replicas_said_what_they_hold() -> None:
    """Were it an old backup, somebody may have led in the next epoch since (I11)."""

    async def scenario() -> None:
        rig = await metadata_harness()
        await rig.create()
        await fail_over(rig)
        rig.brokers[0] = MetadataBroker(rig, BrokerId(0), "0-b", replicas=on_disk(0, 40))
        await rig.brokers[0].register()
        await rig.advance(200, *rig.brokers)
        state = rig.partition()
        await rig.brokers[1].alter(
            proposed(state, (*state.in_sync_replicas, Member(BrokerId(0), rig.brokers[0].epoch)))
        )
        assert rig.partition().in_sync_ids == {0, 1, 2}
        await successor(rig)
        by_an_old_slice = await rig.service.elect_leaders(POOL, ORDERS, (0,), unclean=False)
        await rig.service._pools[POOL].decisions.balance()
        assert by_an_old_slice == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        assert rig.partition().leader == 1
        await rig.advance(300, *rig.brokers)
        now = await rig.service.elect_leaders(POOL, ORDERS, (0,), unclean=False)
        assert (now, rig.partition().leader) == ({0: ErrorCode.NONE}, 0)

    run(scenario)


def test_a_restarted_brokers_log_shows_that_the_slice_is_old() -> None:
    """Nobody lives who remembers the metadata: all brokers start anew over their logs."""

    async def scenario() -> None:
        rig = await metadata_harness()
        await rig.create()
        saved = backup(rig)
        await fail_over(rig)
        restore(rig, saved)
        await successor(rig)
        for number, end in enumerate([(0, 40), (1, 90), (1, 80)]):
            again = MetadataBroker(rig, BrokerId(number), f"{number}-b", replicas=on_disk(*end))
            await again.register(clean_stop_epoch=rig.brokers[number].epoch)
            rig.brokers[number] = again
        await rig.advance(300, *rig.brokers)
        state = rig.partition()
        assert (state.leader, state.in_sync_ids) == (1, {1})
        assert state.leader_epoch > 1

    run(scenario)


def test_a_replica_that_the_old_slice_does_not_know_counts_and_is_kept() -> None:
    async def scenario() -> None:
        rig = await metadata_harness(4)
        await rig.create()
        saved = backup(rig)
        moved = copy.deepcopy(saved)
        (state,) = moved["partitions"]
        members = [{"id": i, "epoch": i + 1} for i in (3, 1, 2)]
        state.update(replicas=[3, 1, 2], isr=members, leader=3, leaderBrokerEpoch=4)
        state.update(leaderEpoch=4, partitionEpoch=9)
        restore(rig, moved)
        await successor(rig)
        await rig.advance(200, *rig.brokers)
        assert rig.partition().leader == 3
        hold(rig, b3=(4, 90), b1=(4, 80), b2=(4, 80))
        restore(rig, saved)
        await successor(rig, 3)
        await rig.advance(300, *rig.brokers)
        state_now = rig.partition()
        assert (state_now.leader, state_now.replicas) == (3, (0, 1, 2, 3))
        assert state_now.removing_replicas == (3,)
        assert state_now.leader_epoch == 6

    run(scenario)


def test_a_running_controller_notices_that_its_own_slice_was_put_back() -> None:
    """No broker has said anything yet: what was durable once is enough."""

    async def scenario() -> None:
        rig = await metadata_harness()
        await rig.create()
        saved = backup(rig)
        await fail_over(rig)
        hold(rig, b1=(1, 90), b2=(1, 80))
        again = MetadataBroker(rig, BrokerId(0), "0-b", replicas=on_disk(0, 40))
        await again.register()
        rig.brokers[0] = again
        restore(rig, saved)
        await rig.service.update_topic(POOL, rig.topic_state(**{"min.insync.replicas": "1"}))
        await rig.advance(300, *rig.brokers)
        assert (rig.partition().leader, rig.partition().leader_epoch) == (1, 3)

    run(scenario)


def test_a_deposed_controllers_late_write_is_read_and_not_rebuilt() -> None:
    """Brokers heard of it before the successor did: they hold more than it knows, and so does
    the store."""

    async def scenario() -> None:
        rig = await metadata_harness()
        await rig.create()
        await successor(rig)
        await rig.advance(100, *rig.brokers)
        (state,) = copy.deepcopy(rig.stored_slice()["partitions"])
        state.update(leader=1, leaderBrokerEpoch=2, leaderEpoch=1, partitionEpoch=1)
        rig.store.touch(PARTITION_SLICE, "orders-0", partitions=[state])
        late = replace(
            rig.partition(),
            leader=BrokerId(1),
            leader_broker_epoch=BrokerEpoch(2),
            leader_epoch=LeaderEpoch(1),
            partition_epoch=rig.partition().partition_epoch + 1,
        )
        broker = rig.brokers[1]
        assert isinstance(broker, MetadataBroker)
        broker.cache.apply_partition(ORDERS, late)
        broker.cache.apply_partition(ORDERS, rig.partition())  # an older push
        assert len(broker.cache.held_epochs) == 1
        await broker.catch_up()
        await rig.advance(200, *rig.brokers)
        assert rig.partition() == late
        view = rig.service.topic(POOL, ORDERS)
        assert view is not None
        assert view.notices == ()

    run(scenario)


def test_a_leader_that_holds_more_than_the_slice_changes_nothing_there() -> None:
    async def scenario() -> None:
        rig = await metadata_harness()
        await rig.create()
        saved = backup(rig)
        await fail_over(rig)
        state = rig.partition()
        restore(rig, saved)
        await successor(rig)
        leader: FakeBroker = rig.brokers[1]
        answer = await leader.alter(proposed(state, state.in_sync_replicas))
        assert answer.answers[0].error is ErrorCode.NOT_CONTROLLER
        assert rig.stored_slice()["partitions"] == saved["partitions"]

    run(scenario)
