"""S12: a deletion is told to every broker that may hold a replica, however late it comes back and
whoever is the controller then; and nothing else is ever taken for one."""

import copy
from pathlib import Path
from typing import Any

import pytest
from tidemark_operator.api.kinds import PARTITION_SLICE, ResourceKind
from tidemark_operator.controller.core.placement import place
from tidemark_operator.store.object_store import Conflict, OutcomeUnknown, StoreError
from tidemark_protocol.controller_messages import ReplicaReport, TopicPush
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    TopicId,
)
from tidemark_protocol.partition_state import Member, TopicState

from tests.support.controller_harness import ORDERS, POOL, FakeBroker, FakeStore, Harness
from tests.support.controller_steps import clean_restart, expand, held, successor
from tests.support.in_process_pool import TOPIC, TOPIC_ID, InProcessPool
from tests.support.waiting import run

TOMBSTONE = f"deleted.{ORDERS}"
AGAIN = TopicId("7f1c0000-0000-0000-0000-000000000009")


def slices(harness: Harness) -> list[str]:
    return sorted(name for kind, _, name in harness.store.objects if kind == PARTITION_SLICE.kind)


async def deleted_ids(broker: FakeBroker) -> list[TopicId]:
    """What a process that has just started is told of."""
    broker.controller_epoch, broker.version = ControllerEpoch(-1), -1
    push = (await broker.poll_to_the_end()).push
    assert push is not None
    return [entry.topic.topic_id for entry in push.topics if entry.is_deleted]


def test_a_tombstone_stays_until_every_broker_has_applied_the_deletion() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.kill(harness.brokers[2])
        await harness.advance(200, *harness.brokers[:2])
        await harness.service.delete_topic(POOL, ORDERS, retain=False)
        await harness.advance(500, *harness.brokers[:2])
        assert slices(harness) == [TOMBSTONE]
        back = FakeBroker(harness, BrokerId(2), "2-b")
        await back.register()
        await back.catch_up()
        await harness.advance(200, *harness.brokers[:2], back)
        assert slices(harness) == []

    run(scenario)


def test_a_broker_that_was_down_hears_of_the_deletion_from_a_later_controller() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.kill(harness.brokers[2])
        await harness.advance(200, *harness.brokers[:2])
        await harness.service.delete_topic(POOL, ORDERS, retain=False)
        await harness.advance(200, *harness.brokers[:2])
        await successor(harness)
        await harness.advance(200, *harness.brokers[:2])
        report = ReplicaReport(ORDERS, 0, LeaderEpoch(0), Offset(9), Offset(9))
        back = FakeBroker(harness, BrokerId(2), "2-b", replicas=(report,))
        await back.register()
        assert await deleted_ids(back) == [ORDERS]

    run(scenario)


def test_a_deletion_cut_short_is_finished_by_a_successor_and_serves_nobody_meanwhile() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(partitions=200)
        sound = harness.store.delete

        async def io_failure(*arguments: object, **more: object) -> None:
            raise StoreError("the API server went away")

        harness.store.delete = io_failure
        await harness.service.delete_topic(POOL, ORDERS, retain=False)
        assert harness.service.topic(POOL, ORDERS) is None
        harness.store.delete = sound
        assert slices(harness) == [TOMBSTONE, "orders-0", "orders-1"]
        await successor(harness)
        assert harness.service.topic(POOL, ORDERS) is None
        assert await deleted_ids(harness.brokers[0]) == [ORDERS]
        await harness.advance(100, *harness.brokers[:2])
        assert slices(harness) == [TOMBSTONE]

    run(scenario)


def test_a_deletion_whose_tombstone_cannot_be_stored_has_not_begun() -> None:
    async def scenario() -> None:
        harness = await Harness(write_attempts=2).start(3)
        await harness.create()
        harness.store.faults[PARTITION_SLICE.kind] = ["lost", "lost"]
        with pytest.raises(StoreError):
            await harness.service.delete_topic(POOL, ORDERS, retain=False)
        assert harness.partition().has_leader
        assert slices(harness) == ["orders-0"]

    run(scenario)


def test_a_topic_made_anew_under_its_name_is_not_held_up_by_a_broker_that_is_down() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.kill(harness.brokers[2])
        await harness.advance(200, *harness.brokers[:2])
        await harness.service.delete_topic(POOL, ORDERS, retain=False)
        again = TopicState("orders", AGAIN, 1, 2)
        await harness.service.create_topic(POOL, again, place(1, 2, [BrokerId(0), BrokerId(1)]))
        view = harness.service.topic(POOL, AGAIN)
        assert view is not None
        assert view.partitions[0].has_leader
        assert slices(harness) == [TOMBSTONE, "orders-0"]

    run(scenario)


class LosesResponses(FakeStore):
    """To the first deletion of a slice, which happens."""

    is_lost = False

    async def delete(self, kind: ResourceKind, namespace: str, name: str, **given: Any) -> None:
        await super().delete(kind, namespace, name, **given)
        if not self.is_lost:
            self.is_lost = True
            raise OutcomeUnknown("no answer")


def test_a_deletion_whose_answer_was_lost_does_not_touch_who_has_the_name_by_now() -> None:
    """It was asked for again at every tick, and the other's slice read again for it each time."""

    async def scenario() -> None:
        harness = await Harness(store=LosesResponses()).start(2)
        await harness.create(replicas=2)
        await harness.service.delete_topic(POOL, ORDERS, retain=False)
        again = TopicState("orders", AGAIN, 1, 2)
        await harness.service.create_topic(POOL, again, place(1, 2, [BrokerId(0), BrokerId(1)]))
        await harness.advance(500, *harness.brokers)
        assert slices(harness) == ["orders-0"]
        view = harness.service.topic(POOL, AGAIN)
        assert view is not None
        assert view.partitions[0].has_leader

    run(scenario)


class Conflicts(FakeStore):
    """At the first deletion of a slice, though it is that one still."""

    has_rejected = False

    async def delete(self, kind: ResourceKind, namespace: str, name: str, **given: Any) -> None:
        if kind is PARTITION_SLICE and not self.has_rejected:
            self.has_rejected = True
            raise Conflict("somebody else was faster")
        await super().delete(kind, namespace, name, **given)


def test_a_slice_whose_deletion_met_a_conflict_and_that_is_there_is_deleted_later() -> None:
    """52001012: it was taken for gone, and once the tombstone was a successor brought it back."""

    async def scenario() -> None:
        harness = await Harness(store=Conflicts()).start(2)
        await harness.create(replicas=2)
        await harness.service.delete_topic(POOL, ORDERS, retain=False)
        assert slices(harness) == [TOMBSTONE, "orders-0"]
        await harness.advance(500, *harness.brokers)
        assert slices(harness) == []
        await successor(harness)
        assert harness.service.topic(POOL, ORDERS) is None

    run(scenario)


def test_a_slice_put_back_after_its_deletion_is_not_served_and_not_deleted_again() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        saved = copy.deepcopy(harness.stored_slice())
        await harness.kill(harness.brokers[2])
        await harness.service.delete_topic(POOL, ORDERS, retain=False)
        saved["metadata"] = {"namespace": "shop", "name": "orders-0"}
        await harness.store.create(PARTITION_SLICE, saved)
        await successor(harness)
        await harness.advance(200, *harness.brokers[:2])
        assert slices(harness) == [TOMBSTONE, "orders-0"]
        assert harness.service.topic(POOL, ORDERS) is None

    run(scenario)


def test_a_missing_slice_that_is_restored_is_led_again() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        key = (PARTITION_SLICE.kind, "shop", "orders-0")
        saved = harness.store.objects.pop(key)
        await harness.kill(harness.brokers[0])  # its fence finds the slice gone
        await harness.advance(200, *harness.brokers[1:])
        assert harness.service.topic(POOL, ORDERS) is None
        await harness.service.find_slices(POOL, ORDERS)
        assert harness.service.topic(POOL, ORDERS) is None
        harness.store.objects[key] = saved
        await harness.service.find_slices(POOL, ORDERS)
        await harness.advance(200, *harness.brokers[1:])
        assert harness.partition().leader in (1, 2)

    run(scenario)


async def led_by_when_put_back(*found: ReplicaReport, is_succeeded: bool = False) -> BrokerId:
    """The slice was away while broker 1 stopped in order and came back with `found`, and while
    another controller took over, if one did. Broker 0 is dead. -1: nobody leads."""
    harness = await Harness().start(3)
    await harness.create()
    key = (PARTITION_SLICE.kind, "shop", "orders-0")
    saved = harness.store.objects.pop(key)
    await harness.kill(harness.brokers[0])  # its fence finds the slice gone
    assert harness.service.topic(POOL, ORDERS) is None
    back = await clean_restart(harness, harness.brokers[1], *found)
    await harness.advance(300, back, harness.brokers[2])
    if is_succeeded:
        await successor(harness)
    harness.store.objects[key] = saved
    await harness.service.find_slices(POOL, ORDERS)
    await harness.advance(300, back, harness.brokers[2])
    return harness.partition().leader


def test_a_restored_slice_counts_on_nobody_who_came_back_without_its_log() -> None:
    """S9: it stopped in order, and nobody knew of the partition when it registered without it."""

    async def scenario() -> None:
        assert await led_by_when_put_back() == 2
        assert await led_by_when_put_back(held(0, 5)) == 1

    run(scenario)


def test_a_restored_slice_counts_on_no_former_life_that_another_controller_registered() -> None:
    """S9: nobody knows any more what it came back with."""

    async def scenario() -> None:
        assert await led_by_when_put_back(is_succeeded=True) == 2
        assert await led_by_when_put_back(held(0, 5), is_succeeded=True) == 2

    run(scenario)


@pytest.mark.parametrize("is_succeeded", [False, True])
def test_a_restored_slice_counts_on_no_life_above_the_one_that_came_back_without_its_log(
    is_succeeded: bool,
) -> None:
    """S2, S9: of a broker whose object and volume are lost too, epochs begin anew while no slice
    names its former ones. `is_succeeded`: by a controller that it did not register with."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        again = await clean_restart(harness, harness.brokers[1], held(0, 5))
        await harness.advance(100, harness.brokers[0], again, harness.brokers[2])
        joined = Member(BrokerId(1), BrokerEpoch(4))
        await harness.brokers[0].alter(expand(harness.partition(), joined))
        assert joined in harness.partition().in_sync_replicas
        saved = harness.stored_slice()
        harness.store.objects.clear()
        await successor(harness)
        harness.highest_epochs.pop(BrokerId(1))
        back = [FakeBroker(harness, BrokerId(1), "1-b")]
        back += [FakeBroker(harness, BrokerId(i), f"{i}-b", replicas=(held(0, 5),)) for i in (0, 2)]
        for broker in back:
            await broker.register()
            await broker.catch_up()
        assert back[0].epoch == 1
        if is_succeeded:
            await successor(harness, epoch=3)
            await harness.advance(300, *back)
        harness.store.objects[PARTITION_SLICE.kind, "shop", "orders-0"] = saved
        await harness.service.find_slices(POOL, ORDERS)
        await harness.advance(300)
        assert not harness.partition().has_leader  # until all have said what they have (S14)
        assert harness.partition().in_sync_ids == frozenset()

    run(scenario)


def test_a_topic_whose_slices_are_gone_is_deleted_by_what_its_topic_object_knew() -> None:
    """That is the way out that its condition names: its data must not stay on every volume."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        del harness.store.objects[(PARTITION_SLICE.kind, "shop", "orders-0")]
        await successor(harness)
        assert harness.service.topic(POOL, ORDERS) is None
        await harness.kill(harness.brokers[2])
        await harness.service.delete_topic(POOL, ORDERS, retain=False, topic="orders")
        assert await deleted_ids(harness.brokers[0]) == [ORDERS]
        await harness.advance(200, *harness.brokers[:2])
        assert slices(harness) == [TOMBSTONE]
        back = FakeBroker(harness, BrokerId(2), "2-b")
        await back.register()
        assert await deleted_ids(back) == [ORDERS]
        await harness.advance(200, *harness.brokers[:2], back)
        assert slices(harness) == []
        await harness.service.delete_topic(POOL, ORDERS, retain=False, topic="orders")
        assert slices(harness) == []

    run(scenario)


def test_slices_that_were_put_back_before_their_topic_was_deleted_go_with_it() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        key = (PARTITION_SLICE.kind, "shop", "orders-0")
        saved = harness.store.objects.pop(key)
        await successor(harness)
        harness.store.objects[key] = saved
        await harness.service.delete_topic(POOL, ORDERS, retain=False, topic="orders")
        assert slices(harness) == [TOMBSTONE]

    run(scenario)


def test_a_broker_erases_what_it_found_on_its_disk_only_when_it_is_told_so(tmp_path: Path) -> None:
    """It has just started and knows no metadata: the topic id alone must do."""
    pool = InProcessPool(tmp_path, brokers=(1,), min_insync=1)
    pool.lead(1)
    assert pool.brokers[1].produce("r")[0].error == 0
    pool.kill(1)
    broker = pool.start(1)
    partitions = broker.partitions
    pool.image_version += 1
    image = pool.image()
    other = TopicState(TOPIC, TopicId("another"), 1, 1)
    for topic_id, is_kept in ((other.topic_id, True), (TOPIC_ID, False)):
        pool.image_version += 1
        entry = TopicPush(TopicState(TOPIC, topic_id, 0, 0), (), is_deleted=True)
        partitions.apply_push(
            type(image)(image.controller_epoch, pool.image_version, True, image.brokers, (entry,))
        )
        assert (partitions.hosted(TOPIC_ID, 0) is not None) is is_kept
    names = [path.name for path in broker.directory.path.glob(f"{TOPIC}-0*")]
    assert [name.rpartition("-")[2] for name in names] == ["delete"]  # for its grace time
