"""Named scenarios of docs/design/safety.md that the controller answers for."""

from dataclasses import replace

import pytest
from tidemark_operator.api.kinds import BROKER, PARTITION_SLICE
from tidemark_operator.controller.core.metadata_image import MetadataImage
from tidemark_operator.controller.service import ProbeVerdict
from tidemark_protocol.controller_messages import IsrProposal
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
)
from tidemark_protocol.partition_state import PartitionState

from tests.support.controller_harness import ORDERS, POOL, FakeBroker, Harness, evaluate
from tests.support.controller_steps import clean_restart, expand, held, successor
from tests.support.controller_values import member, members, partition, shown, topic
from tests.support.waiting import run

# S2


def test_s2_registering_fences_the_former_life_and_raises_the_leader_epoch_of_what_it_led() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        again = FakeBroker(harness, BrokerId(0), "0-b")
        await again.register()
        assert again.epoch == 4
        assert shown(harness.partition()) == "leader 1@2 epoch 1 isr [1@2 2@3] eligible [] pe 1"

    run(scenario)


def test_s2_the_former_lifes_poll_is_answered_with_its_end() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        previous = harness.brokers[0]
        await FakeBroker(harness, BrokerId(0), "0-b").register()
        assert previous.poll is not None
        assert (await previous.poll).error is ErrorCode.STALE_BROKER_EPOCH
        assert (await previous.heartbeat()).error is ErrorCode.STALE_BROKER_EPOCH
        response = await previous.alter()
        assert response.error is ErrorCode.STALE_BROKER_EPOCH

    run(scenario)


def test_s2_the_epoch_is_durable_before_the_broker_hears_of_it() -> None:
    async def scenario() -> None:
        harness = await Harness(write_attempts=2).start(1)
        harness.store.faults["Broker"] = ["lost", "lost"]
        again = FakeBroker(harness, BrokerId(0), "0-b")
        response = await again.register()
        assert (response.error, response.broker_epoch) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        response = await again.register()
        stored = harness.store.objects[(BROKER.kind, "shop", "default-0")]
        assert response.broker_epoch == stored["status"]["brokerEpoch"] == 2

    run(scenario)


def test_s2_a_registration_whose_answer_was_lost_gets_the_same_epoch_again() -> None:
    async def scenario() -> None:
        harness = await Harness().start(1)
        harness.store.faults["Broker"] = ["landed"]
        again = FakeBroker(harness, BrokerId(0), "0-b")
        first = await again.register()
        second = await again.register()
        assert (first.broker_epoch, second.broker_epoch) == (2, 2)
        assert (first.is_clean, second.is_clean) == (False, False)

    run(scenario)


def test_s2_a_registration_that_comes_after_its_successors_ends_no_life() -> None:
    """Sent again by a process that was killed then, or held up by the network as its first one
    (seed 37002807). Taken for a new life it fenced the living process, and voided what that one
    proves. Whose predecessor does not poll is never put off."""

    async def scenario() -> None:
        harness = await Harness().start(1)
        await harness.create(replicas=1)
        previous = harness.brokers[0]
        again = await clean_restart(harness, previous, held(0, 5))
        before = shown(harness.partition())
        late = await previous.register()
        assert (late.error, late.broker_epoch) == (ErrorCode.STALE_BROKER_EPOCH, -1)
        assert shown(harness.partition()) == before
        assert again.poll is not None and not again.poll.done()
        assert (await again.register()).broker_epoch == again.epoch
        killed = FakeBroker(harness, BrokerId(0), "0-never registered")
        late = await killed.register(highest_broker_epoch=previous.epoch)
        assert late.error is ErrorCode.REQUEST_TIMED_OUT
        assert shown(harness.partition()) == before
        third = await clean_restart(harness, again, held(0, 5))
        for replaced in (previous, again):
            assert (await replaced.register()).error is ErrorCode.STALE_BROKER_EPOCH
        assert third.poll is not None and not third.poll.done()
        await harness.kill(third)
        copy = FakeBroker(harness, BrokerId(0), "0-on a volume as it was before")
        assert (await copy.register(highest_broker_epoch=previous.epoch)).error is ErrorCode.NONE

    run(scenario)


def test_s2_epochs_rise_over_all_brokers_of_the_pool_and_over_what_disks_report() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        fourth = FakeBroker(harness, BrokerId(3), "3-a")
        await fourth.register(highest_broker_epoch=BrokerEpoch(40))
        assert fourth.epoch == 41
        await successor(harness)
        fifth = FakeBroker(harness, BrokerId(4), "4-a")
        await fifth.register()
        assert fifth.epoch == 42

    run(scenario)


def test_s2_the_controller_dies_before_stripping_and_its_successor_never_elects_a_void_entry() -> (
    None
):
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        before = harness.stored_slice()
        # B's unclean registration is durable, the slice still lists B@2: as left by a controller
        # that died in between.
        await FakeBroker(harness, BrokerId(1), "1-b").register()
        stale = dict(before, partitions=harness.stored_slice()["partitions"])
        stale["partitions"] = [
            dict(
                stale["partitions"][0],
                leader=-1,
                leaderBrokerEpoch=-1,
                isr=[{"id": 1, "epoch": 2}],
                eligibleLeaders=[],
            )
        ]
        harness.store.touch(PARTITION_SLICE, "orders-0", partitions=stale["partitions"])
        await successor(harness)
        await harness.advance(100)
        state = harness.partition()
        assert not state.has_leader
        assert state.in_sync_replicas == state.eligible_leaders == ()

    run(scenario)


def test_s2_a_retained_slice_adopted_later_has_no_void_entries() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.service.delete_topic(POOL, ORDERS, retain=True)
        harness.brokers[0] = await harness.new_broker(0, life="b")  # unclean
        await harness.create()
        state = harness.partition()
        assert state.in_sync_replicas == members("1@2 2@3")
        assert state.leader in (1, 2)

    run(scenario)


def test_s2_a_deposed_controllers_old_member_is_not_admitted() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.kill(harness.brokers[1])
        harness.brokers[1] = await harness.new_broker(1, life="b")
        response = await harness.brokers[0].alter(expand(harness.partition(), member("1@2")))
        assert response.answers[0].error is ErrorCode.INELIGIBLE_REPLICA
        response = await harness.brokers[0].alter(expand(harness.partition(), member("1@4")))
        assert response.answers[0].error is ErrorCode.NONE

    run(scenario)


# Clean stops.


def test_a_clean_stop_keeps_the_entry_and_leads_under_the_new_epoch() -> None:
    async def scenario() -> None:
        harness = await Harness().start(1)
        await harness.create(replicas=1)
        (only,) = harness.brokers
        await only.heartbeat(wants_to_stop=True)
        assert shown(harness.partition()) == "leader -1@-1 epoch 1 isr [] eligible [0@1] pe 1"
        await clean_restart(harness, only, held(0, 10, 10))
        assert shown(harness.partition()) == "leader 0@2 epoch 2 isr [0@2] eligible [] pe 2"
        stored = harness.store.objects[(BROKER.kind, "shop", "default-0")]["status"]
        assert (stored["brokerEpoch"], stored["cleanSince"]) == (2, 1)

    run(scenario)


@pytest.mark.parametrize(
    "changes",
    [{"clean_stop_epoch": BrokerEpoch(7)}, {"clean_stop_epoch": BrokerEpoch(-1)}, {"disk": "new"}],
    ids=["proof of another life", "no proof", "another volume"],
)
def test_without_its_full_proof_a_start_is_unclean(changes: dict[str, object]) -> None:
    async def scenario() -> None:
        harness = await Harness().start(1)
        again = FakeBroker(harness, BrokerId(0), "0-b")
        given = dict(changes)
        if given.pop("disk", None):
            from tidemark_protocol.controller_messages import StorageIdentity

            given = {"storage": StorageIdentity("other"), "clean_stop_epoch": BrokerEpoch(1)}
        response = await again.register(**given)
        stored = harness.store.objects[(BROKER.kind, "shop", "default-0")]["status"]
        assert not response.is_clean
        assert stored["cleanSince"] == stored["brokerEpoch"] == 2

    run(scenario)


def test_a_volume_of_another_cluster_is_refused() -> None:
    async def scenario() -> None:
        harness = await Harness().start(1)
        response = await FakeBroker(harness, BrokerId(1), "1-a").register(cluster_id="foreign")
        assert response.error is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert "foreign" in response.message

    run(scenario)


# S3


async def refused(harness: Harness) -> tuple[PartitionState, IsrProposal]:
    """ISR {0,1}; broker 2 is fenced; leader 0 proposes {0,1,2}."""
    await harness.create()
    harness.probe.verdicts["2-a"] = ProbeVerdict.REFUSED
    await harness.kill(harness.brokers[2])
    state = harness.partition()
    assert state.in_sync_replicas == members("0@1 1@2")
    return state, expand(state, member("2@3"))


def test_s3_a_refused_expand_is_a_durable_change_of_the_partition_epoch() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        state, proposed = await refused(harness)
        (response,) = (await harness.brokers[0].alter(proposed)).answers
        assert response.error is ErrorCode.INELIGIBLE_REPLICA
        assert response.state is not None
        assert response.state.partition_epoch == state.partition_epoch + 1
        assert (
            harness.stored_slice()["partitions"][0]["partitionEpoch"] == state.partition_epoch + 1
        )

    run(scenario)


def test_s3_a_frozen_controllers_queued_expand_cannot_land_after_its_successors_refusal() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        leader = harness.brokers[0]
        await leader.alter(
            replace(expand(harness.partition()), new_in_sync_replicas=members("0@1 1@2"))
        )
        state = harness.partition()
        frozen = harness.service
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        harness.probe.verdicts["2-a"] = ProbeVerdict.REFUSED
        harness.service.suspect(POOL, BrokerId(2), "pod gone")
        await evaluate()
        (response,) = (await leader.alter(expand(state, member("2@3")))).answers
        assert response.error is ErrorCode.INELIGIBLE_REPLICA
        # The old controller thaws with the same proposal: its compare-and-set fails, it rereads,
        # finds a later controller's write and decides nothing any more.
        harness.service, thawed = frozen, frozen
        late = await leader.alter(expand(state, member("2@3")))
        assert late.error is ErrorCode.NOT_CONTROLLER
        await evaluate()
        assert not thawed.is_leading
        assert harness.stored_slice()["partitions"][0]["isr"] == [
            {"id": 0, "epoch": 1},
            {"id": 1, "epoch": 2},
        ]

    run(scenario)


@pytest.mark.parametrize("outcome", ["lost", "landed", "conflict"])
def test_s3_an_unknown_outcome_is_settled_by_a_read_before_anybody_is_answered(
    outcome: str,
) -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        leader = harness.brokers[0]
        state = harness.partition()
        shrink = replace(expand(state), new_in_sync_replicas=members("0@1 1@2"))
        harness.store.faults["PartitionSlice"] = [outcome]
        (response,) = (await leader.alter(shrink)).answers
        stored = harness.stored_slice()["partitions"][0]
        assert response.state is not None
        assert response.state.partition_epoch == stored["partitionEpoch"] == 1
        assert len(stored["isr"]) == 2
        # If it had landed, deciding again from what is stored finds the proposal outdated; the
        # full state in the answer tells the leader that its change is in.
        expected = ErrorCode.INVALID_UPDATE_VERSION if outcome == "landed" else ErrorCode.NONE
        assert response.error is expected

    run(scenario)


def test_s3_an_unreadable_slice_is_answered_pushed_and_shown_to_nobody() -> None:
    async def scenario() -> None:
        harness = await Harness(write_attempts=1).start(3)
        await harness.create()
        state = harness.partition()
        shrink = replace(expand(state), new_in_sync_replicas=members("0@1 1@2"))
        harness.store.faults["PartitionSlice"] = ["landed"]
        response = await harness.brokers[0].alter(shrink)
        assert (response.error, response.answers) == (ErrorCode.NONE, ())
        view = harness.service.topic(POOL, ORDERS)
        assert view is not None
        assert view.partitions == ()
        late = FakeBroker(harness, BrokerId(3), "3-a")
        harness.store.is_down = False
        await late.register()
        # Registering settled nothing of that slice yet, or it did by reading: never the old state.
        push = (await late.heartbeat()).push
        assert push is not None
        shown_states = [p for t in push.topics for p in t.partitions]
        assert all(p.partition_epoch == 1 for p in shown_states)

    run(scenario)


def test_s3_a_decision_that_met_a_dead_store_is_made_when_the_store_is_back() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        harness.store.is_down = True
        await harness.kill(harness.brokers[0])
        await harness.advance(200, harness.brokers[1], harness.brokers[2])
        harness.store.is_down = False
        await harness.advance(100, harness.brokers[1], harness.brokers[2])
        assert shown(harness.partition()) == "leader 1@2 epoch 1 isr [1@2 2@3] eligible [] pe 1"
        stored = harness.store.objects[(BROKER.kind, "shop", "default-0")]["status"]
        assert stored["state"] == "Fenced"

    run(scenario)


# S6


def test_s6_lowering_min_isr_raises_the_partition_epoch_and_drops_eligible_leaders_with_it() -> (
    None
):
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(**{"min.insync.replicas": "2"})
        await harness.kill(harness.brokers[1])
        await harness.kill(harness.brokers[2])
        before = harness.partition()
        assert shown(before) == "leader 0@1 epoch 0 isr [0@1] eligible [2@3] pe 2"
        await harness.service.update_topic(
            POOL, harness.topic_state(**{"min.insync.replicas": "1"})
        )
        found = harness.partition()
        assert shown(found) == "leader 0@1 epoch 0 isr [0@1] eligible [] pe 3"
        assert (before.min_insync_replicas, found.min_insync_replicas) == (2, 1)
        assert harness.stored_slice()["partitions"][0]["minIsr"] == 1

    run(scenario)


def test_s6_raising_min_isr_makes_no_eligible_leaders_out_of_nothing() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(**{"min.insync.replicas": "1"})
        await harness.kill(harness.brokers[1])
        await harness.service.update_topic(
            POOL, harness.topic_state(**{"min.insync.replicas": "3"})
        )
        found = harness.partition()
        assert (found.min_insync_replicas, found.eligible_leaders) == (3, ())
        writes = harness.store.writes
        await harness.service.update_topic(
            POOL, harness.topic_state(**{"min.insync.replicas": "3"})
        )
        assert harness.store.writes == writes

    run(scenario)


def test_s6_min_isr_above_the_replication_factor_counts_as_the_replication_factor() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(replicas=2, **{"min.insync.replicas": "3"})
        assert harness.partition().min_insync_replicas == 2

    run(scenario)


# S25


def test_s25_a_restarted_brokers_former_entries_never_come_back_by_a_push() -> None:
    image = MetadataImage(ControllerEpoch(4), deleted_retained=10)
    image.set_partitions(topic(), (partition("0@1 1@4", leader="0@1"),), is_retained=False)
    first = image.push_for(ControllerEpoch(-1), -1)
    image.set_partitions(topic(), (partition("0@1", leader="0@1"),), is_retained=False)
    second = image.push_for(ControllerEpoch(4), first.image_version if first else 0)
    assert first is not None
    assert second is not None
    assert (first.is_full, second.is_full) == (True, False)
    assert (second.controller_epoch, second.image_version) > (
        first.controller_epoch,
        first.image_version,
    )
    assert second.topics[0].partitions[0].in_sync_replicas == members("0@1")
