"""S12: absence is never deletion, and what cannot be read is not absent either."""

from pathlib import Path

import pytest
from tidemark_operator.api.kinds import PARTITION_SLICE
from tidemark_operator.controller.core.placement import place
from tidemark_operator.controller.service import SliceMissing
from tidemark_operator.store.object_store import StoreError
from tidemark_protocol.controller_messages import MetadataPush, ReplicaReport, TopicPush
from tidemark_protocol.ids import BrokerId, ControllerEpoch, LeaderEpoch, Offset, TopicId
from tidemark_protocol.partition_state import TopicState

from tests.support.controller_harness import ORDERS, POOL, FakeBroker, Harness
from tests.support.in_process_pool import TOPIC, InProcessPool, a_batch
from tests.support.waiting import run


def test_a_slice_deleted_by_hand_gets_no_fresh_one_and_costs_no_broker_its_log(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        del harness.store.objects[(PARTITION_SLICE.kind, "shop", "orders-0")]
        await harness.service.step_down()
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        ids = [broker.broker_id for broker in harness.brokers]
        with pytest.raises(SliceMissing):
            await harness.service.create_topic(
                POOL, harness.topic_state(), place(1, 3, ids), had_slices=True
            )
        assert (PARTITION_SLICE.kind, "shop", "orders-0") not in harness.store.objects

    run(scenario)
    pool = InProcessPool(tmp_path, brokers=(1,), min_insync=1)
    pool.lead(1)
    assert pool.brokers[1].produce("r")[0].error == 0
    nothing = MetadataPush(ControllerEpoch(2), 1, True, pool.image().brokers, ())
    pool.brokers[1].partitions.apply_push(nothing)
    assert pool.brokers[1].replica().log.log_end_offset == 1


@pytest.mark.parametrize("had_slices", [True, False], ids=["recorded", "only reported"])
def test_slices_that_a_deposed_controller_made_after_its_successor_had_read_all_are_taken_in(
    had_slices: bool,
) -> None:
    """Creating is no compare-and-set: nothing stops the deposed one. Found by the simulator."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        superseded, harness.service = harness.service, harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        ids = [broker.broker_id for broker in harness.brokers]
        await superseded.create_topic(POOL, harness.topic_state(), place(1, 3, ids))
        stored = harness.stored_slice()
        reported = ReplicaReport(ORDERS, 0, LeaderEpoch(0), Offset(0), Offset(0))
        await FakeBroker(harness, BrokerId(0), "0-b", replicas=(reported,)).register()
        await harness.service.create_topic(
            POOL, harness.topic_state(), place(1, 3, ids), had_slices=had_slices
        )
        assert harness.stored_slice()["metadata"]["uid"] == stored["metadata"]["uid"]
        assert harness.partition().replicas == (0, 1, 2)

    run(scenario)


def test_a_topic_id_whose_deletion_brokers_were_told_of_never_gets_slices_again() -> None:
    """Every full push of this term names it as deleted first: a broker that applied one would
    erase what the id holds since."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.service.delete_topic(POOL, ORDERS, retain=False)
        for broker in harness.brokers:
            await broker.register()  # again, with nothing of the topic on the disk
        with pytest.raises(SliceMissing):
            await harness.create()

    run(scenario)


def test_a_slice_made_unreadable_by_hand_does_not_hold_up_the_rest_of_the_pool() -> None:
    """Kept as it is and shown as missing; brokers register and other partitions get leaders."""

    async def scenario() -> None:
        harness = await Harness(write_attempts=2).start(3)
        await harness.create(partitions=129)
        (broken,) = harness.stored_slice(0)["partitions"][:1]
        harness.store.touch(PARTITION_SLICE, "orders-0", partitions=[{**broken, "isr": "all"}])
        await harness.kill(harness.brokers[2])  # led partition 128 % 3
        await harness.advance(200, *harness.brokers[:2])
        assert harness.partition(128).leader in (0, 1)
        again = FakeBroker(harness, BrokerId(2), "2-b")
        assert (await again.register()).broker_epoch > 3
        view = harness.service.topic(POOL, ORDERS)
        assert view is not None
        assert view.missing_slices == ("orders-0",)
        assert harness.stored_slice(0)["partitions"][0]["isr"] == "all"

    run(scenario)


def test_an_unreadable_slice_of_a_topic_without_status_is_not_written_over() -> None:
    async def scenario() -> None:
        harness = await Harness(write_attempts=2).start(3)
        await harness.create()
        harness.store.touch(PARTITION_SLICE, "orders-0", partitions="gone")
        await harness.service.step_down()
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        for broker in harness.brokers:
            broker.controller_epoch, broker.version = ControllerEpoch(-1), -1
            await broker.catch_up()
        with pytest.raises(StoreError):
            await harness.create()
        assert harness.stored_slice()["partitions"] == "gone"

    run(scenario)


def test_a_topic_recreated_under_its_name_takes_nothing_from_under_who_still_leads_the_old_one(
    tmp_path: Path,
) -> None:
    """Both news come in one push. Logs that it needs are made in a worker before it is applied:
    meanwhile the old topic is led and written to, and its log must not be set aside."""
    pool = InProcessPool(tmp_path, brokers=(1,), min_insync=1)
    pool.lead(1)
    broker = pool.brokers[1]
    old = pool.topic
    pool.topic = TopicState(TOPIC, TopicId("00000000-0000-0000-0000-000000000002"), 1, 1)
    pool.image_version += 1
    image = pool.image()
    push = MetadataPush(
        image.controller_epoch,
        image.image_version,
        True,
        image.brokers,
        (TopicPush(old, (), is_deleted=True), *image.topics),
    )
    for topic, topic_id, partition in broker.partitions.roles.missing_logs(push.topics):
        broker.directory.create_log(topic, topic_id, partition)
    assert broker.produce_bytes(a_batch("r"))[0].error == 0
    assert broker.storage_errors == []
    broker.partitions.apply_push(push)
    assert broker.storage_errors == []
    assert broker.replica((pool.topic.topic_id, 0)).log.log_end_offset == 0
    names = {path.name.rpartition("-")[2] for path in broker.directory.path.glob(f"{TOPIC}-0.*")}
    assert names == {"delete"}  # renamed for its grace time


def test_a_flush_asked_for_before_its_topic_was_deleted_is_no_failure_of_the_disk(
    tmp_path: Path,
) -> None:
    """Else deleting one topic with `flush: Always` makes the next start of every broker of the
    pool unclean."""
    topic = TopicState(TOPIC, TopicId("00000000-0000-0000-0000-000000000001"), 1, 1, flush="Always")
    pool = InProcessPool(tmp_path, brokers=(1,), min_insync=1, topic=topic)
    pool.lead(1)
    broker = pool.brokers[1]
    broker.produce("r")
    requested = tuple(broker.flush_requested)
    assert requested
    pool.image_version += 1
    image = pool.image()
    gone = MetadataPush(
        image.controller_epoch,
        image.image_version,
        True,
        image.brokers,
        (TopicPush(topic, (), is_deleted=True),),
    )
    broker.partitions.apply_push(gone)
    for replica in requested:
        replica.log.flush()
    broker.directory.checkpoint_recovery_points()
    assert broker.storage_errors == []
