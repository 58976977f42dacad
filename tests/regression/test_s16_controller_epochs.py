"""S16: no controller epoch is used twice, and none falls, whatever happens to the Lease."""

import copy
from typing import Any

from tidemark_operator.api.kinds import BROKER, LEASE, PARTITION_SLICE, ResourceKind
from tidemark_protocol.ids import BrokerId, ControllerEpoch, TopicId

from tests.regression.lease_candidates import candidate
from tests.support.controller_harness import POOL, FakeStore, Harness, evaluate
from tests.support.waiting import run

LEASE_KEY = (LEASE.kind, "tidemark", "tidemark-controller")


class CountingStore(FakeStore):
    def __init__(self) -> None:
        super().__init__()
        self.lists: list[str] = []

    async def list(self, kind: ResourceKind, *arguments: Any, **options: Any) -> Any:
        self.lists.append(kind.kind)
        return await super().list(kind, *arguments, **options)


def test_a_term_that_wrote_nothing_shares_no_epoch_with_the_one_after_a_deleted_lease() -> None:
    """Term 2 writes nothing but its Lease; the Lease is deleted; the next term counts from the
    objects and arrives at 2 again. Its pushes look older than those that brokers applied."""

    async def scenario() -> None:
        harness = Harness()
        first, harness.service = candidate(harness, "one")
        await first.step()
        for number in range(3):
            harness.brokers.append(await harness.new_broker(number))
        await harness.create()
        await first.release()
        await harness.service.step_down()
        second, harness.service = candidate(harness, "two")
        await second.step()
        assert harness.service.controller_epoch == 2
        harness.service._pools[POOL].decisions.image.version = 40  # as after some time
        for broker in harness.brokers:
            await broker.catch_up()
        assert {broker.controller_epoch for broker in harness.brokers} == {2}

        del harness.store.objects[(LEASE.kind, "tidemark", "tidemark-controller")]
        await harness.service.step_down()
        third, harness.service = candidate(harness, "three")
        await third.step()
        assert harness.service.controller_epoch == 2  # nobody can know better yet
        for broker in harness.brokers:
            broker.heartbeat()
        await evaluate()
        await third.step()  # finds that a broker knows a later epoch
        await third.step()
        assert harness.service.controller_epoch > 2
        for broker in harness.brokers:
            await broker.catch_up()
        await harness.kill(harness.brokers[0])
        await harness.advance(100, *harness.brokers[1:])
        leader = harness.brokers[harness.partition().leader]
        assert leader.broker_id != 0
        # S25 at the broker: only a later (controller epoch, version) is applied.
        assert leader.controller_epoch > 2
        assert leader.reported[0].leader == leader.broker_id

    run(scenario)


def test_a_broker_that_applied_this_controllers_own_pushes_deposes_nobody() -> None:
    async def scenario() -> None:
        harness = Harness()
        lease, harness.service = candidate(harness, "one")
        await lease.step()
        for number in range(3):
            harness.brokers.append(await harness.new_broker(number))
        await harness.create()
        for life in ("b", "c"):
            harness.brokers[1] = await harness.new_broker(1, life=life)
            await harness.advance(1000, *harness.brokers)
            await lease.step()
        assert harness.service.controller_epoch == 1
        assert harness.service.highest_broker_controller_epoch() <= 1

    run(scenario)


def test_epochs_on_brokers_disks_count_even_when_every_object_is_gone() -> None:
    async def scenario() -> None:
        harness = Harness()
        lease, harness.service = candidate(harness, "one")
        await lease.step()
        assert harness.service.controller_epoch == 1
        broker = await harness.new_broker(0)
        response = await broker.register(highest_controller_epoch=ControllerEpoch(70))
        assert response.broker_epoch == -1
        await lease.step()
        await lease.step()
        assert harness.service.controller_epoch == 71
        assert harness.service.topic(POOL, TopicId("none")) is None
        assert [view.broker_id for view in harness.service.brokers(POOL)] == [BrokerId(0)]

    run(scenario)


def test_a_lease_from_a_backup_takes_no_epoch_that_objects_have() -> None:
    """The number that the Lease gives out is another term's: both would tell the same versions."""

    async def scenario() -> None:
        harness = Harness()
        lease, harness.service = candidate(harness, "one")
        await lease.step()
        backup = copy.deepcopy(harness.store.objects[LEASE_KEY])
        await lease.release()
        await harness.service.step_down()
        second, harness.service = candidate(harness, "two")
        await second.step()
        assert harness.service.controller_epoch == 2
        harness.brokers.append(await harness.new_broker(0))
        await harness.create(replicas=1)
        await second.release()
        await harness.service.step_down()

        harness.store.objects[LEASE_KEY] = backup
        third, harness.service = candidate(harness, "three")
        await third.step()  # observes who holds it, by the backup
        harness.clock.ms += 4000
        await third.step()
        assert not harness.service.is_leading
        await third.step()
        assert harness.service.controller_epoch == 3

    run(scenario)


def test_a_take_over_reads_what_is_stored_once() -> None:
    async def scenario() -> None:
        harness = Harness(store=CountingStore())
        lease, harness.service = candidate(harness, "one")
        await lease.step()
        await lease.release()
        await harness.service.step_down()
        harness.store.lists.clear()
        second, harness.service = candidate(harness, "two")
        await second.step()
        assert harness.service.controller_epoch == 2
        assert harness.store.lists == [BROKER.kind, PARTITION_SLICE.kind]

    run(scenario)
