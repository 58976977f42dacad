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
        rig = await Harness().start(0)
        broker = await rig.new_broker(0)
        (view,) = rig.service.brokers(POOL)
        assert (view.state, view.broker_epoch) == ("Active", 1)
        stored = rig.store.objects[(BROKER.kind, "shop", "default-0")]
        assert stored["status"]["state"] == "Active"
        assert stored["status"]["cleanSince"] == stored["status"]["brokerEpoch"] == broker.epoch

    run(scenario)


def test_an_open_poll_is_answered_at_the_heartbeat_interval() -> None:
    async def scenario() -> None:
        rig = await Harness().start(1)
        (broker,) = rig.brokers
        poll = broker.poll
        assert poll is not None
        await rig.advance(450)
        assert not poll.done()
        await rig.advance(100)
        response = poll.result()
        assert (response.error, response.push, response.is_fenced) == (ErrorCode.NONE, None, False)

    run(scenario)


def test_a_change_is_pushed_to_every_open_poll_at_once() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create(3)
        assert all(set(broker.reported) == {0, 1, 2} for broker in rig.brokers)

    run(scenario)


def test_a_newer_heartbeat_releases_the_older_one_of_the_same_broker() -> None:
    async def scenario() -> None:
        rig = await Harness().start(1)
        (broker,) = rig.brokers
        older = broker.poll
        assert older is not None
        newer = broker.heartbeat()
        await evaluate()
        assert older.result().error is ErrorCode.NONE
        assert not newer.done()

    run(scenario)


def test_a_killed_leader_is_replaced_without_any_time_passing() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create()
        await rig.kill(rig.brokers[0])
        assert shown(rig.partition()) == "leader 1@2 epoch 1 isr [1@2 2@3] eligible [] pe 1"
        await rig.brokers[1].catch_up()
        assert rig.brokers[1].reported[0] == rig.partition()
        assert rig.service.brokers(POOL)[0].state == "Fenced"

    run(scenario)


def test_a_refused_probe_does_not_fence_a_broker_whose_poll_is_open() -> None:
    """S19: a rejecting network policy is no death."""

    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create()
        rig.probe.verdicts["0-a"] = ProbeVerdict.REFUSED
        rig.service.suspect(POOL, BrokerId(0), "a test says so")
        await evaluate()
        assert rig.probe.requested == ["0-a"]
        assert rig.partition().leader == 0

    run(scenario)


def test_a_follower_reports_its_leader_and_the_controller_probes_it() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        rig.brokers[1].heartbeat(suspects=(BrokerId(0), BrokerId(77)))
        await evaluate()
        assert rig.probe.requested == ["0-a"]
        assert rig.service.brokers(POOL)[0].state == "Active"

    run(scenario)


def test_a_broken_poll_of_a_broker_that_answers_its_probe_fences_nobody() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create()
        poll = rig.brokers[0].poll
        assert poll is not None
        poll.cancel()
        await evaluate()
        assert rig.probe.requested == ["0-a"]
        assert rig.partition().leader == 0

    run(scenario)


def test_a_silent_broker_is_fenced_at_the_session_timeout() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create()
        rig.probe.verdicts["0-a"] = ProbeVerdict.NO_RESPONSE
        await rig.advance(2950, rig.brokers[1], rig.brokers[2])
        assert rig.partition().leader == 0
        await rig.advance(100, rig.brokers[1], rig.brokers[2])
        assert shown(rig.partition()) == "leader 1@2 epoch 1 isr [1@2 2@3] eligible [] pe 1"

    run(scenario)


def test_a_stalled_controller_fences_nobody_for_its_own_silence() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create()
        await rig.tick()
        rig.clock.ms += 20_000
        await rig.tick()
        assert {view.state for view in rig.service.brokers(POOL)} == {"Active"}

    run(scenario)


def test_a_fenced_broker_that_speaks_again_is_active_under_the_same_epoch() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create()
        rig.probe.verdicts["0-a"] = ProbeVerdict.NO_RESPONSE
        await rig.advance(3100, rig.brokers[1], rig.brokers[2])
        await rig.brokers[0].catch_up()
        view = rig.service.brokers(POOL)[0]
        assert (view.state, view.broker_epoch) == ("Active", 1)
        assert 0 not in rig.partition().in_sync_ids  # only its leader brings it back

    run(scenario)


def test_after_take_over_silence_counts_only_from_then_on() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create()
        await rig.service.step_down()
        rig.clock.ms += 60_000
        successor = rig.service = rig.another_controller()
        await successor.load(ControllerEpoch(2))
        await rig.advance(2950)
        assert {view.state for view in successor.brokers(POOL)} == {"Active"}

    run(scenario)


def test_after_take_over_a_refused_probe_fences_at_once() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create()
        await rig.service.step_down()
        rig.service = rig.another_controller()
        await rig.service.load(ControllerEpoch(2))
        rig.probe.verdicts["0-a"] = ProbeVerdict.REFUSED
        rig.service.suspect(POOL, BrokerId(0), "pod vanished")
        await evaluate()
        assert not rig.partition().has_leader
        await rig.advance(100, *rig.brokers[1:])  # nobody of them holds a newer state (S17)
        assert rig.partition().leader == 1

    run(scenario)


def test_brokers_go_on_under_a_successor_without_registering_again() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create()
        await rig.service.step_down()
        rig.service = rig.another_controller()
        await rig.service.load(ControllerEpoch(2))
        response = await rig.brokers[0].poll_to_the_end()
        assert response.error is ErrorCode.NONE
        assert response.push is not None
        assert (response.push.controller_epoch, response.push.is_full) == (2, True)

    run(scenario)


def test_stepping_down_answers_open_polls_and_names_the_leader() -> None:
    async def scenario() -> None:
        rig = await Harness().start(1)
        rig.service.set_leader_address("10.0.0.9:8070")
        poll = rig.brokers[0].poll
        assert poll is not None
        await rig.service.step_down()
        response = await poll
        assert response.error is ErrorCode.NOT_CONTROLLER
        assert response.controller_address == "10.0.0.9:8070"
        with pytest.raises(NotController):
            rig.service.brokers(POOL)

    run(scenario)


def test_controlled_shutdown_moves_leadership_and_waits_for_the_others_to_know() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create()
        first, second, third = rig.brokers
        stopping = first.heartbeat(wants_to_stop=True)
        await evaluate()
        assert shown(rig.partition()) == "leader 1@2 epoch 1 isr [1@2 2@3] eligible [] pe 1"
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
        rig = await Harness().start(3)
        await rig.create()
        first = rig.brokers[0]
        first.apply(await first.heartbeat(wants_to_stop=True))
        poll = first.heartbeat(wants_to_stop=True)
        may_stop_at = None
        for elapsed in range(0, 3000, 50):
            await rig.tick()
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
        rig = await Harness().start(1)
        broker = FakeBroker(rig, BrokerId(1), "1-a")
        await broker.register()
        broker.apply(await broker.heartbeat(wants_to_serve=False))
        response = await broker.heartbeat(wants_to_serve=False, wants_to_stop=True)
        assert response.may_stop

    run(scenario)


def test_idle_clusters_write_nothing() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create(3)
        await rig.tick()
        writes = rig.store.writes
        await rig.advance(61_000, *rig.brokers)
        assert rig.store.writes == writes

    run(scenario)


def test_leadership_returns_to_preferred_replicas_after_the_balance_interval() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create(3)
        await rig.kill(rig.brokers[0])
        rig.brokers[0] = await rig.new_broker(0, life="b")
        state = rig.partition(0)
        leader = rig.brokers[state.leader]
        expand = replace(
            proposal("", leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch),
            new_in_sync_replicas=(*state.in_sync_replicas, member("0@4")),
        )
        answer = await leader.alter(expand)
        assert answer.answers[0].error is ErrorCode.NONE
        await rig.advance(31_000, *rig.brokers)
        assert [rig.partition(number).leader for number in range(3)] == [0, 1, 2]

    run(scenario)


# Topics.


def test_creating_a_topic_again_writes_nothing() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create(3)
        writes = rig.store.writes
        await rig.create(3)
        assert rig.store.writes == writes
        assert StateChange("topic", POOL, "orders") in rig.changes

    run(scenario)


def test_updating_a_topic_with_what_it_has_writes_nothing() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create()
        writes = rig.store.writes
        await rig.service.update_topic(POOL, rig.topic_state())
        assert rig.store.writes == writes

    run(scenario)


def test_a_large_topic_is_cut_into_slices_of_128_partitions() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create(300)
        view = rig.service.topic(POOL, ORDERS)
        assert view is not None
        assert [len(rig.stored_slice(i)["partitions"]) for i in range(3)] == [128, 128, 44]
        assert {rig.stored_slice(i)["partitionCount"] for i in range(3)} == {300}
        assert [state.partition for state in view.partitions] == list(range(300))

    run(scenario)


def test_an_interrupted_creation_goes_on_where_it_ended() -> None:
    async def scenario() -> None:
        rig = await Harness(write_attempts=1).start(3)
        rig.store.faults["PartitionSlice"] = ["", "lost"]
        with pytest.raises(Exception, match="not created"):
            await rig.create(300)
        view = rig.service.topic(POOL, ORDERS)
        assert view is not None
        assert (len(view.partitions), view.missing_slices) == (128, ())
        await rig.create(300)
        view = rig.service.topic(POOL, ORDERS)
        assert view is not None
        assert (len(view.partitions), view.topic.partition_count) == (300, 300)

    run(scenario)


def test_added_partitions_fill_the_last_slice_first() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create(127)
        await grow(rig, 127, 3)
        assert [len(rig.stored_slice(i)["partitions"]) for i in range(2)] == [128, 2]
        view = rig.service.topic(POOL, ORDERS)
        assert view is not None
        assert view.topic.partition_count == 130

    run(scenario)


def test_a_topic_without_any_live_replica_is_refused() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        with pytest.raises(NoLiveReplica, match="partition 0"):
            await rig.service.create_topic(POOL, rig.topic_state(1, 1), ((BrokerId(9),),))

    run(scenario)


def test_deletion_is_an_explicit_entry_in_every_push() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create()
        await rig.service.delete_topic(POOL, ORDERS, retain=False)
        await evaluate()
        poll = rig.brokers[0].poll
        assert poll is not None
        push = poll.result().push
        assert push is not None
        assert [(t.topic.topic_id, t.is_deleted) for t in push.topics] == [(ORDERS, True)]
        late = await rig.new_broker(3)
        assert rig.service.topic(POOL, ORDERS) is None
        assert late.reported == {}
        await rig.service.delete_topic(POOL, ORDERS, retain=False)

    run(scenario)


def test_a_retained_topic_keeps_its_slices_and_is_adopted_with_its_epochs() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create()
        await rig.service.delete_topic(POOL, ORDERS, retain=True)
        assert rig.stored_slice()["retained"] is True
        assert shown(rig.partition()) == ("leader -1@-1 epoch 1 isr [0@1 1@2 2@3] eligible [] pe 1")
        assert [view.is_retained for view in rig.service.topics(POOL)] == [True]
        await rig.create()
        assert rig.stored_slice()["retained"] is False
        assert shown(rig.partition()) == ("leader 0@1 epoch 2 isr [0@1 1@2 2@3] eligible [] pe 2")
        assert [view.is_retained for view in rig.service.topics(POOL)] == [False]

    run(scenario)


def test_a_slice_name_taken_by_another_topic_id_is_not_overwritten() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create()
        other = replace(rig.topic_state(), topic_id=TopicId("another"))
        with pytest.raises(Exception, match="expected topic ID another"):
            await rig.service.create_topic(POOL, other, ((BrokerId(0), BrokerId(1), BrokerId(2)),))
        assert rig.stored_slice()["topicId"] == ORDERS

    run(scenario)


def test_partitions_of_a_topic_whose_slice_vanished_are_not_made_anew() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create(300)
        await rig.service.step_down()
        del rig.store.objects[("PartitionSlice", "shop", "orders-1")]
        rig.service = rig.another_controller()
        await rig.service.load(ControllerEpoch(2))
        view = rig.service.topic(POOL, ORDERS)
        assert view is not None
        assert view.missing_slices == ("orders-1",)
        with pytest.raises(SliceMissing, match="orders-1"):
            await rig.create(300)

    run(scenario)


def test_brokers_whose_namespace_is_gone_are_forgotten_not_written_for_ever() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        rig.store.faults[BROKER.kind] = ["namespace gone"] * 3
        for broker in rig.brokers:
            await rig.kill(broker)
        await rig.advance(5_000)
        assert rig.store.faults[BROKER.kind] == []
        assert rig.service.brokers(POOL) == ()

    run(scenario)


def test_a_topic_of_that_name_adopts_retained_data_whatever_its_object_is_called() -> None:
    async def scenario() -> None:
        rig = await Harness().start(3)
        await rig.create()
        await rig.service.delete_topic(POOL, ORDERS, retain=True)
        ids = [broker.broker_id for broker in rig.brokers]
        topic = rig.topic_state(130)
        await rig.service.create_topic(
            POOL, topic, place(130, 3, ids), object_name="incoming", had_slices=True
        )
        view = rig.service.topic(POOL, ORDERS)
        assert view is not None
        assert (view.object_name, view.missing_slices) == ("incoming", ())
        assert len(view.partitions) == 130
        assert "orders-1" in [name for _, _, name in rig.store.objects]
        assert rig.stored_slice()["topicObject"] == "incoming"

    run(scenario)
