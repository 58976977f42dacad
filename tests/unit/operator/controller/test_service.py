"""The controller's shell: polls, sessions, suspicion, controlled shutdown, topics; no real time."""

from dataclasses import replace

import pytest
from tidemark_operator.api.kinds import BROKER
from tidemark_operator.controller.core.placement import place
from tidemark_operator.controller.service import (
    NoLiveReplica,
    NotController,
    ProbeVerdict,
    SliceMissing,
    StateChange,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, ControllerEpoch, TopicId

from tests.support.controller_harness import ORDERS, POOL, FakeBroker, Harness, evaluate
from tests.support.controller_steps import grow
from tests.support.controller_values import member, proposal, shown
from tests.support.waiting import run


def test_a_registered_broker_becomes_active_by_its_first_heartbeat() -> None:
    async def scenario() -> None:
        harness = await Harness().start(0)
        broker = await harness.new_broker(0)
        (view,) = harness.service.brokers(POOL)
        assert (view.state, view.broker_epoch) == ("Active", 1)
        stored = harness.store.objects[(BROKER.kind, "shop", "default-0")]
        assert stored["status"]["state"] == "Active"
        assert stored["status"]["cleanSince"] == stored["status"]["brokerEpoch"] == broker.epoch

    run(scenario)


def test_an_open_poll_is_answered_at_the_heartbeat_interval() -> None:
    async def scenario() -> None:
        harness = await Harness().start(1)
        (broker,) = harness.brokers
        poll = broker.poll
        assert poll is not None
        await harness.advance(450)
        assert not poll.done()
        await harness.advance(100)
        response = poll.result()
        assert (response.error, response.push, response.is_fenced) == (ErrorCode.NONE, None, False)

    run(scenario)


def test_a_change_is_pushed_to_every_open_poll_at_once() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(3)
        assert all(set(broker.reported) == {0, 1, 2} for broker in harness.brokers)

    run(scenario)


def test_a_newer_heartbeat_releases_the_older_one_of_the_same_broker() -> None:
    async def scenario() -> None:
        harness = await Harness().start(1)
        (broker,) = harness.brokers
        older = broker.poll
        assert older is not None
        newer = broker.heartbeat()
        await evaluate()
        assert older.result().error is ErrorCode.NONE
        assert not newer.done()

    run(scenario)


def test_a_killed_leader_is_replaced_without_any_time_passing() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.kill(harness.brokers[0])
        assert shown(harness.partition()) == "leader 1@2 epoch 1 isr [1@2 2@3] eligible [] pe 1"
        await harness.brokers[1].catch_up()
        assert harness.brokers[1].reported[0] == harness.partition()
        assert harness.service.brokers(POOL)[0].state == "Fenced"

    run(scenario)


def test_a_refused_probe_does_not_fence_a_broker_whose_poll_is_open() -> None:
    """S19: a rejecting network policy is no death."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        harness.probe.verdicts["0-a"] = ProbeVerdict.REFUSED
        harness.service.suspect(POOL, BrokerId(0), "a test says so")
        await evaluate()
        assert harness.probe.requested == ["0-a"]
        assert harness.partition().leader == 0

    run(scenario)


def test_a_follower_reports_its_leader_and_the_controller_probes_it() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        harness.brokers[1].heartbeat(suspects=(BrokerId(0), BrokerId(77)))
        await evaluate()
        assert harness.probe.requested == ["0-a"]
        assert harness.service.brokers(POOL)[0].state == "Active"

    run(scenario)


def test_a_broken_poll_of_a_broker_that_answers_its_probe_fences_nobody() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        poll = harness.brokers[0].poll
        assert poll is not None
        poll.cancel()
        await evaluate()
        assert harness.probe.requested == ["0-a"]
        assert harness.partition().leader == 0

    run(scenario)


def test_a_silent_broker_is_fenced_at_the_session_timeout() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        harness.probe.verdicts["0-a"] = ProbeVerdict.NO_RESPONSE
        await harness.advance(2950, harness.brokers[1], harness.brokers[2])
        assert harness.partition().leader == 0
        await harness.advance(100, harness.brokers[1], harness.brokers[2])
        assert shown(harness.partition()) == "leader 1@2 epoch 1 isr [1@2 2@3] eligible [] pe 1"

    run(scenario)


def test_a_stalled_controller_fences_nobody_for_its_own_silence() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.tick()
        harness.clock.ms += 20_000
        await harness.tick()
        assert {view.state for view in harness.service.brokers(POOL)} == {"Active"}

    run(scenario)


def test_a_fenced_broker_that_speaks_again_is_active_under_the_same_epoch() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        harness.probe.verdicts["0-a"] = ProbeVerdict.NO_RESPONSE
        await harness.advance(3100, harness.brokers[1], harness.brokers[2])
        await harness.brokers[0].catch_up()
        view = harness.service.brokers(POOL)[0]
        assert (view.state, view.broker_epoch) == ("Active", 1)
        assert 0 not in harness.partition().in_sync_ids  # only its leader brings it back

    run(scenario)


def test_after_take_over_silence_counts_only_from_then_on() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.service.step_down()
        harness.clock.ms += 60_000
        successor = harness.service = harness.another_controller()
        await successor.load(ControllerEpoch(2))
        await harness.advance(2950)
        assert {view.state for view in successor.brokers(POOL)} == {"Active"}

    run(scenario)


def test_after_take_over_a_refused_probe_fences_at_once() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.service.step_down()
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        harness.probe.verdicts["0-a"] = ProbeVerdict.REFUSED
        harness.service.suspect(POOL, BrokerId(0), "pod vanished")
        await evaluate()
        assert not harness.partition().has_leader
        await harness.advance(100, *harness.brokers[1:])  # nobody of them holds a newer state (S17)
        assert harness.partition().leader == 1

    run(scenario)


def test_brokers_go_on_under_a_successor_without_registering_again() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.service.step_down()
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        response = await harness.brokers[0].poll_to_the_end()
        assert response.error is ErrorCode.NONE
        assert response.push is not None
        assert (response.push.controller_epoch, response.push.is_full) == (2, True)

    run(scenario)


def test_stepping_down_answers_open_polls_and_names_the_leader() -> None:
    async def scenario() -> None:
        harness = await Harness().start(1)
        harness.service.set_leader_address("10.0.0.9:8070")
        poll = harness.brokers[0].poll
        assert poll is not None
        await harness.service.step_down()
        response = await poll
        assert response.error is ErrorCode.NOT_CONTROLLER
        assert response.controller_address == "10.0.0.9:8070"
        with pytest.raises(NotController):
            harness.service.brokers(POOL)

    run(scenario)


def test_controlled_shutdown_moves_leadership_and_waits_for_the_others_to_know() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        first, second, third = harness.brokers
        stopping = first.heartbeat(wants_to_stop=True)
        await evaluate()
        assert shown(harness.partition()) == "leader 1@2 epoch 1 isr [1@2 2@3] eligible [] pe 1"
        response = await stopping
        assert not response.may_stop
        first.apply(response)
        waiting = first.heartbeat(wants_to_stop=True)
        await evaluate()
        await second.catch_up()
        assert not waiting.done() or not waiting.result().may_stop
        await third.catch_up()
        if waiting.done():
            first.apply(waiting.result())
            waiting = first.heartbeat(wants_to_stop=True)
            await evaluate()
        assert waiting.result().may_stop

    run(scenario)


def test_controlled_shutdown_waits_two_seconds_at_most_for_the_others() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        first = harness.brokers[0]
        first.apply(await first.heartbeat(wants_to_stop=True))
        poll = first.heartbeat(wants_to_stop=True)
        may_stop_at = None
        for elapsed in range(0, 3000, 50):
            await harness.tick()
            if poll.done() and poll.result().may_stop:
                may_stop_at = elapsed
                break
            if poll.done():
                poll = first.heartbeat(wants_to_stop=True)
        assert may_stop_at is not None
        assert 1900 <= may_stop_at <= 2100

    run(scenario)


def test_a_broker_that_serves_nothing_may_stop_at_once() -> None:
    async def scenario() -> None:
        harness = await Harness().start(1)
        broker = FakeBroker(harness, BrokerId(1), "1-a")
        await broker.register()
        broker.apply(await broker.heartbeat(wants_to_serve=False))
        response = await broker.heartbeat(wants_to_serve=False, wants_to_stop=True)
        assert response.may_stop

    run(scenario)


def test_idle_clusters_write_nothing() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(3)
        await harness.tick()
        writes = harness.store.writes
        await harness.advance(61_000, *harness.brokers)
        assert harness.store.writes == writes

    run(scenario)


def test_leadership_returns_to_preferred_replicas_after_the_balance_interval() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(3)
        await harness.kill(harness.brokers[0])
        harness.brokers[0] = await harness.new_broker(0, life="b")
        state = harness.partition(0)
        leader = harness.brokers[state.leader]
        expand = replace(
            proposal("", leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch),
            new_in_sync_replicas=(*state.in_sync_replicas, member("0@4")),
        )
        response = await leader.alter(expand)
        assert response.answers[0].error is ErrorCode.NONE
        await harness.advance(31_000, *harness.brokers)
        assert [harness.partition(number).leader for number in range(3)] == [0, 1, 2]

    run(scenario)


# Topics.


def test_creating_a_topic_again_writes_nothing() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(3)
        writes = harness.store.writes
        await harness.create(3)
        assert harness.store.writes == writes
        assert StateChange("topic", POOL, "orders") in harness.changes

    run(scenario)


def test_updating_a_topic_with_what_it_has_writes_nothing() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        writes = harness.store.writes
        await harness.service.update_topic(POOL, harness.topic_state())
        assert harness.store.writes == writes

    run(scenario)


def test_a_large_topic_is_cut_into_slices_of_128_partitions() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(300)
        view = harness.service.topic(POOL, ORDERS)
        assert view is not None
        assert [len(harness.stored_slice(i)["partitions"]) for i in range(3)] == [128, 128, 44]
        assert {harness.stored_slice(i)["partitionCount"] for i in range(3)} == {300}
        assert [state.partition for state in view.partitions] == list(range(300))

    run(scenario)


def test_an_interrupted_creation_goes_on_where_it_ended() -> None:
    async def scenario() -> None:
        harness = await Harness(write_attempts=1).start(3)
        harness.store.faults["PartitionSlice"] = ["", "lost"]
        with pytest.raises(Exception, match="not created"):
            await harness.create(300)
        view = harness.service.topic(POOL, ORDERS)
        assert view is not None
        assert (len(view.partitions), view.missing_slices) == (128, ())
        await harness.create(300)
        view = harness.service.topic(POOL, ORDERS)
        assert view is not None
        assert (len(view.partitions), view.topic.partition_count) == (300, 300)

    run(scenario)


def test_added_partitions_fill_the_last_slice_first() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(127)
        await grow(harness, 127, 3)
        assert [len(harness.stored_slice(i)["partitions"]) for i in range(2)] == [128, 2]
        view = harness.service.topic(POOL, ORDERS)
        assert view is not None
        assert view.topic.partition_count == 130

    run(scenario)


def test_a_topic_without_any_live_replica_is_refused() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        with pytest.raises(NoLiveReplica, match="partition 0"):
            await harness.service.create_topic(POOL, harness.topic_state(1, 1), ((BrokerId(9),),))

    run(scenario)


def test_deletion_is_an_explicit_entry_in_every_push() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.service.delete_topic(POOL, ORDERS, retain=False)
        await evaluate()
        poll = harness.brokers[0].poll
        assert poll is not None
        push = poll.result().push
        assert push is not None
        assert [(t.topic.topic_id, t.is_deleted) for t in push.topics] == [(ORDERS, True)]
        late = await harness.new_broker(3)
        assert harness.service.topic(POOL, ORDERS) is None
        assert late.reported == {}
        await harness.service.delete_topic(POOL, ORDERS, retain=False)

    run(scenario)


def test_a_retained_topic_keeps_its_slices_and_is_adopted_with_its_epochs() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.service.delete_topic(POOL, ORDERS, retain=True)
        assert harness.stored_slice()["retained"] is True
        assert shown(harness.partition()) == (
            "leader -1@-1 epoch 1 isr [0@1 1@2 2@3] eligible [] pe 1"
        )
        assert [view.is_retained for view in harness.service.topics(POOL)] == [True]
        await harness.create()
        assert harness.stored_slice()["retained"] is False
        assert shown(harness.partition()) == (
            "leader 0@1 epoch 2 isr [0@1 1@2 2@3] eligible [] pe 2"
        )
        assert [view.is_retained for view in harness.service.topics(POOL)] == [False]

    run(scenario)


def test_a_slice_name_taken_by_another_topic_id_is_not_overwritten() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        other = replace(harness.topic_state(), topic_id=TopicId("another"))
        with pytest.raises(Exception, match="expected topic ID another"):
            await harness.service.create_topic(
                POOL, other, ((BrokerId(0), BrokerId(1), BrokerId(2)),)
            )
        assert harness.stored_slice()["topicId"] == ORDERS

    run(scenario)


def test_partitions_of_a_topic_whose_slice_vanished_are_not_made_anew() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(300)
        await harness.service.step_down()
        del harness.store.objects[("PartitionSlice", "shop", "orders-1")]
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        view = harness.service.topic(POOL, ORDERS)
        assert view is not None
        assert view.missing_slices == ("orders-1",)
        with pytest.raises(SliceMissing, match="orders-1"):
            await harness.create(300)

    run(scenario)


def test_brokers_whose_namespace_is_gone_are_forgotten_not_written_for_ever() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        harness.store.faults[BROKER.kind] = ["namespace gone"] * 3
        for broker in harness.brokers:
            await harness.kill(broker)
        await harness.advance(5_000)
        assert harness.store.faults[BROKER.kind] == []
        assert harness.service.brokers(POOL) == ()

    run(scenario)


def test_a_topic_of_that_name_adopts_retained_data_whatever_its_object_is_called() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.service.delete_topic(POOL, ORDERS, retain=True)
        ids = [broker.broker_id for broker in harness.brokers]
        topic = harness.topic_state(130)
        await harness.service.create_topic(
            POOL, topic, place(130, 3, ids), object_name="incoming", had_slices=True
        )
        view = harness.service.topic(POOL, ORDERS)
        assert view is not None
        assert (view.object_name, view.missing_slices) == ("incoming", ())
        assert len(view.partitions) == 130
        assert "orders-1" in [name for _, _, name in harness.store.objects]
        assert harness.stored_slice()["topicObject"] == "incoming"

    run(scenario)
