"""The metadata image: versions, deltas, deletions, unreadable partitions."""

from dataclasses import replace

from tidemark_operator.controller.core.metadata_image import MetadataImage
from tidemark_operator.controller.core.views import PoolSettings
from tidemark_protocol.controller_messages import HeartbeatResponse, MetadataPush, decode, encode
from tidemark_protocol.ids import ControllerEpoch
from tidemark_protocol.partition_state import PartitionState

from tests.support.controller_harness import POOL, Harness, evaluate
from tests.support.controller_values import TOPIC_ID, partition, topic
from tests.support.waiting import run

EPOCH = ControllerEpoch(3)
P0 = partition("0@1", leader="0@1")
P1 = replace(P0, partition=1)


def image_of(*partitions: PartitionState) -> MetadataImage:
    image = MetadataImage(EPOCH, deleted_retained=2)
    image.set_partitions(topic(), partitions, is_retained=False)
    return image


def numbers(push: MetadataPush) -> list[int]:
    return [state.partition for pushed in push.topics for state in pushed.partitions]


def test_a_broker_that_applied_nothing_or_another_controllers_image_gets_everything() -> None:
    image = image_of(P0, P1)
    for epoch, version in ((ControllerEpoch(-1), -1), (ControllerEpoch(2), image.version)):
        push = image.push_for(epoch, version)
        assert push is not None
        assert (push.is_full, numbers(push)) == (True, [0, 1])


def test_a_version_from_the_future_gets_everything() -> None:
    image = image_of(P0)
    push = image.push_for(EPOCH, image.version + 1)
    assert push is not None
    assert push.is_full


def test_who_is_up_to_date_gets_nothing() -> None:
    image = image_of(P0)
    assert image.push_for(EPOCH, image.version) is None


def test_a_delta_holds_the_changed_partitions_only() -> None:
    image = image_of(P0, P1)
    applied = image.version
    image.set_partitions(
        topic(), (P0, replace(P1, partition_epoch=P1.partition_epoch + 1)), is_retained=False
    )
    push = image.push_for(EPOCH, applied)
    assert push is not None
    assert (push.is_full, numbers(push)) == (False, [1])


def test_setting_the_same_again_is_no_new_version() -> None:
    image = image_of(P0)
    version = image.version
    image.set_partitions(topic(), (P0,), is_retained=False)
    image.set_brokers(())
    assert image.version == version


def test_a_changed_config_is_pushed_without_partitions() -> None:
    image = image_of(P0)
    applied = image.version
    image.set_partitions(topic(x="1"), (P0,), is_retained=False)
    push = image.push_for(EPOCH, applied)
    assert push is not None
    assert (push.topics[0].topic.config, push.topics[0].partitions) == ({"x": "1"}, ())


def test_deletions_stay_explicit_also_in_full_pushes() -> None:
    image = image_of(P0)
    applied = image.version
    image.delete(topic())
    for version in (applied, -1):
        push = image.push_for(EPOCH, version)
        assert push is not None
        assert [(t.topic.topic_id, t.is_deleted) for t in push.topics] == [(TOPIC_ID, True)]


def test_an_unreadable_partition_is_in_no_push_until_it_is_settled_and_then_in_everybodys() -> None:
    image = image_of(P0, P1)
    image.withhold(TOPIC_ID, (1,))
    push = image.push_for(ControllerEpoch(-1), -1)
    assert push is not None
    assert numbers(push) == [0]
    image.set_partitions(topic(), (P1,), is_retained=False)
    delta = image.push_for(EPOCH, push.image_version)
    assert delta is not None
    assert numbers(delta) == [1]


def test_how_fast_replicas_may_be_moved_is_pushed_at_once_and_to_whoever_comes() -> None:
    async def scenario() -> None:
        harness = await Harness().start(1)
        poll = harness.brokers[0].poll
        assert poll is not None and not poll.done()
        await harness.service.set_settings(POOL, PoolSettings(4096))
        await evaluate()
        assert poll.done()
        new = await harness.new_broker(1)
        for response in (await poll, await new.heartbeat(applied_image_version=-1)):
            sent = decode(encode(response), HeartbeatResponse)
            assert sent.push is not None
            assert sent.push.move_bytes_per_second == 4096

    run(scenario)
