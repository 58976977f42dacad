"""S21: a controller that is busy with its own work takes no broker's waiting for silence.

While a large topic is made, the pool's lock is held and slices are written for longer than a
session. Heartbeats are answered all the same, and what waits unread is nobody's silence.
"""

import asyncio

from tidemark_operator.api.kinds import PARTITION_SLICE
from tidemark_operator.store.lease import LeaseSettings
from tidemark_protocol.controller_messages import HeartbeatResponse, ReplicaReport
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, ControllerEpoch, LeaderEpoch, Offset

from tests.regression.lease_candidates import candidate
from tests.simulation.engine.simulated_cluster import Cluster
from tests.support.controller_harness import (
    ORDERS,
    POOL,
    FakeBroker,
    FakeStore,
    Harness,
    ProbeVerdict,
    evaluate,
)
from tests.support.controller_steps import expand
from tests.support.controller_values import partition
from tests.support.waiting import run

FAILED = (ReplicaReport(ORDERS, 0, LeaderEpoch(-1), Offset(-1), Offset(-1), failed=True),)


def states(harness: Harness) -> list[str]:
    return [view.state for view in harness.service.brokers(POOL)]


async def responses_in(
    harness: Harness, ms: int, broker: FakeBroker, **desired_topics: object
) -> list[HeartbeatResponse]:
    """Of a broker that goes on asking, beside the others."""
    found: list[HeartbeatResponse] = []
    requesting = broker.heartbeat(**desired_topics)
    for _ in range(ms // 500):
        await harness.advance(500, *[other for other in harness.brokers if other is not broker])
        if requesting.done():
            found.append(requesting.result())
            broker.apply(requesting.result())
            requesting = broker.heartbeat(**desired_topics)
    requesting.cancel()
    await evaluate()
    return found


def test_a_live_broker_whose_wish_waits_for_a_long_write_is_answered_and_not_fenced() -> None:
    """As measured with 2,000 partitions on five brokers: seven fencings of brokers that lived."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        async with harness.service._pools[POOL].decisions.lock:  # a topic is made
            responses = await responses_in(
                harness, 8000, harness.brokers[2], failed_replicas=FAILED
            )
            assert len(responses) >= 8
            assert {response.error for response in responses} == {ErrorCode.NONE}
            assert not any(response.are_failures_settled for response in responses)
            assert states(harness) == ["Active"] * 3
        await evaluate()
        assert 2 not in harness.partition().in_sync_ids
        (response,) = await responses_in(harness, 500, harness.brokers[2], failed_replicas=FAILED)
        assert response.are_failures_settled

    run(scenario)


def test_a_broker_that_wants_to_serve_hears_so_long_that_it_is_fenced_and_then_that_it_serves() -> (
    None
):
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        starting = FakeBroker(harness, BrokerId(3), "3-a")
        await starting.register()
        async with harness.service._pools[POOL].decisions.lock:
            responses = await responses_in(harness, 2000, starting)
            assert [response.is_fenced for response in responses] == [True] * len(responses)
            assert len(responses) >= 2
        await starting.catch_up()
        assert states(harness) == ["Active"] * 4

    run(scenario)


def test_what_failed_no_more_and_then_again_is_settled_again() -> None:
    """Between the two it may have come in sync, by a decision that held the lock meanwhile."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        sick = harness.brokers[2]
        await responses_in(harness, 1000, sick, failed_replicas=FAILED)
        sound = sick.heartbeat(number=1)
        await evaluate()
        leader = harness.brokers[harness.partition().leader]
        state = harness.partition()
        member = partition("2@3").in_sync_replicas[0]
        assert (await leader.alter(expand(state, member))).answers[0].error is ErrorCode.NONE
        pool = harness.service._pools[POOL].decisions
        async with pool.lock:
            again = sick.heartbeat(number=2, failed_replicas=FAILED)
            await harness.advance(500, *harness.brokers[:2])
            assert not (await again).are_failures_settled
        await evaluate()
        assert 2 not in harness.partition().in_sync_ids
        await asyncio.gather(sound)

    run(scenario)


def test_brokers_that_are_known_to_be_dead_are_no_silence_to_doubt() -> None:
    """Two of three were killed while the lock was held for longer than a session."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        async with harness.service._pools[POOL].decisions.lock:
            for dead in harness.brokers[:2]:
                await harness.kill(dead)
            await harness.advance(6000, harness.brokers[2])
            assert harness.service.reason_to_give_way() == ""
        await evaluate()
        assert states(harness) == ["Fenced", "Fenced", "Active"]

    run(scenario)


def test_a_refused_probe_that_is_looked_at_before_the_first_tick_after_a_stall_fences_nobody() -> (
    None
):
    """The broker polls, as its controller will see once it reads."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        broker = harness.brokers[0]
        harness.probe.verdicts[broker.incarnation] = ProbeVerdict.REFUSED
        await harness.advance(500, *harness.brokers[1:])  # its poll is answered
        harness.clock.ms += 2000
        harness.service.suspect(POOL, broker.broker_id, "reported by broker 1")
        await evaluate()
        assert states(harness) == ["Active"] * 3
        await broker.catch_up()
        await harness.advance(1000, *harness.brokers)
        assert states(harness) == ["Active"] * 3

    run(scenario)


def test_a_lease_is_renewed_while_its_holders_loop_is_busy() -> None:
    """In the simulator, where its thread is a loop of its own. Busy for longer than a Lease, with
    three brokers that poll on: nobody is fenced, and the same one leads."""
    with Cluster(1) as cluster:
        cluster.start()
        cluster.run_for(3_000)
        slot = cluster.leading_controller
        assert slot is not None and slot.process is not None and slot.service is not None
        epoch = slot.service.controller_epoch
        slot.process.loop.block_until(cluster.now_us + 6_000_000)
        cluster.run_for(12_000)
        assert cluster.leading_controller is slot
        assert slot.service.controller_epoch == epoch
        assert [view.state for view in slot.service.brokers(cluster.pool)] == ["Active"] * 3


def test_a_loop_that_turns_no_more_loses_its_lease_to_another() -> None:
    """Whoever hangs for good leads for ten seconds more, and a Lease's duration."""
    with Cluster(1) as cluster:
        cluster.start()
        cluster.run_for(3_000)
        stuck = cluster.leading_controller
        assert stuck is not None and stuck.process is not None
        stuck.process.loop.block_until(cluster.now_us + 3_600_000_000)
        cluster.run_for(9_000)
        assert stuck.is_leading
        cluster.run_for(8_000)
        successor = cluster.leading_controller
        assert successor is not None and successor is not stuck and not stuck.is_leading


def test_a_controller_that_stalls_while_it_takes_over_fences_nobody_for_that() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.service.step_down()
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        harness.clock.ms += 10_000  # reconcilers begin their first sweep
        await harness.service.tick()
        await evaluate()
        assert states(harness) == ["Active"] * 3
        assert harness.service.reason_to_give_way() == ""

    run(scenario)


def test_who_doubts_itself_says_who_was_silent_for_how_long() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.advance(1000, *harness.brokers)
        await harness.advance(3500, harness.brokers[0])
        reason = harness.service.reason_to_give_way()
        assert reason.startswith(
            f"pool {POOL}: no heartbeat from more than half of the brokers: broker 1 for 3."
        )
        assert "broker 2 for 3." in reason
        assert "broker 0" not in reason

    run(scenario)


class SlowCreation(FakeStore):
    """Its writes of slices take as long as the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = asyncio.Event()

    async def create(self, kind: object, item: object) -> object:  # type: ignore[override]
        if kind is PARTITION_SLICE:
            await self.may_write.wait()
        return await super().create(kind, item)  # type: ignore[arg-type]


def test_a_deposed_controller_whose_loop_is_busy_begins_no_decision_any_more() -> None:
    """I16: its Lease was lost on the Lease's own thread, and it has not stepped down yet."""

    async def scenario() -> None:
        harness = Harness()
        lease, harness.service = candidate(harness, "one")
        await lease.step()
        for number in range(3):
            harness.brokers.append(await harness.new_broker(number))
        await harness.create()
        writes = harness.store.writes
        harness.service.depose()
        assert not harness.service.is_leading
        await harness.kill(harness.brokers[0])
        response = await harness.brokers[1].alter()
        assert response.error is ErrorCode.NOT_CONTROLLER
        assert harness.store.writes == writes
        harness.clock.ms += LeaseSettings("tidemark").give_up_after_ms
        await lease.step()
        await lease.step()
        assert harness.service.is_leading
        assert harness.service.controller_epoch == ControllerEpoch(2)

    run(scenario)


def test_what_a_deposed_controller_had_begun_is_refused_once_its_successor_wrote() -> None:
    """A write that it sent meanwhile meets the compare-and-set."""

    async def scenario() -> None:
        store = SlowCreation()
        harness = Harness(store=store)
        first, harness.service = candidate(harness, "one")
        await first.step()
        for number in range(3):
            harness.brokers.append(await harness.new_broker(number))
        making = asyncio.create_task(
            harness.service.create_topic(POOL, harness.topic_state(), ((BrokerId(0), BrokerId(1)),))
        )
        await evaluate()
        superseded = harness.service
        superseded.depose()
        second, harness.service = candidate(harness, "two")
        harness.clock.ms += 1
        await second.step()
        harness.clock.ms += 10_000
        await second.step()
        assert harness.service.is_leading
        store.may_write.set()
        await harness.service.create_topic(
            POOL, harness.topic_state(), ((BrokerId(1), BrokerId(2)),)
        )
        await asyncio.gather(making, return_exceptions=True)
        stored = harness.stored_slice()
        assert stored["controllerEpoch"] in (1, 2)
        assert len([key for key in store.objects if key[0] == PARTITION_SLICE.kind]) == 1
        held = harness.partition()
        assert [held.leader, *held.replicas] == [
            stored["partitions"][0]["leader"],
            *stored["partitions"][0]["replicas"],
        ]

    run(scenario)
