"""S17: a slice put back from before a move does not name who joined by it; that log is not erased.
And a topic's name belongs to the topic that was made last: no other one's log is served by it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_broker.kafka.apis.fetch import ConsumerFetch, FetchLimits
from tidemark_broker.kafka.apis.fetch_sessions import Key
from tidemark_broker.kafka_wire.messages.cooperative_steps import all_steps
from tidemark_broker.kafka_wire.messages.fetch import FetchPartition, PartitionResponse
from tidemark_protocol.controller_messages import MetadataPush, TopicPush
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import LeaderEpoch, Offset, PartitionEpoch, TopicId
from tidemark_protocol.partition_state import TopicState

from tests.support.in_process_pool import TOPIC, TOPIC_ID, InProcessPool


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[InProcessPool]:
    pool = InProcessPool(tmp_path)
    pool.lead(1)
    pool.brokers[1].produce("r")
    pool.replicate(3, rounds=2)
    yield pool
    for number in tuple(pool.brokers):
        pool.kill(number)


def three_has_moved_away(pool: InProcessPool, *, leader_epochs: int) -> None:
    first, second, _ = pool.state.replicas
    pool.state = replace(
        pool.state,
        replicas=(first, second),
        in_sync_replicas=pool.state.in_sync_replicas[:2],
        leader_epoch=LeaderEpoch(pool.state.leader_epoch + leader_epochs),
        partition_epoch=PartitionEpoch(pool.state.partition_epoch + 1),
    )
    pool.push()


def renamed_logs(pool: InProcessPool, number: int) -> list[Path]:
    return list(pool.brokers[number].directory.path.glob("*-delete"))


def restarted(pool: InProcessPool, number: int) -> None:
    pool.kill(number)
    pool.start(number)


@pytest.mark.parametrize("leader_epochs", [0, -1])
def test_a_state_that_is_not_above_the_log_erases_nothing(
    pool: InProcessPool, leader_epochs: int
) -> None:
    """Restarted, it remembers no state, so any is new to it."""
    restarted(pool, 3)
    three_has_moved_away(pool, leader_epochs=leader_epochs)
    replica = pool.brokers[3].replica()
    assert (replica.log.log_end_offset, replica.role) == (1, "idle")
    assert not renamed_logs(pool, 3)


def test_who_has_left_for_good_lets_go_of_its_log(pool: InProcessPool) -> None:
    restarted(pool, 3)
    three_has_moved_away(pool, leader_epochs=1)
    assert pool.brokers[3].partitions.replicas == ()
    assert renamed_logs(pool, 3)


def test_a_recreated_topics_requests_do_not_reach_the_old_one_where_only_that_is_held(
    pool: InProcessPool,
) -> None:
    """The old one's slice was gone when it was deleted, so nobody was told to erase it."""
    again = TopicState(TOPIC, TopicId("00000000-0000-0000-0000-000000000002"), 1, 1)
    pool.image_version += 1
    image = pool.image()
    push = MetadataPush(
        image.controller_epoch, image.image_version, False, image.brokers, (TopicPush(again, ()),)
    )
    leader = pool.brokers[1]
    waiting = leader.produce("waits")
    leader.partitions.apply_push(push)
    refused = [result.error for result in (*waiting, *leader.produce("late"))]
    assert refused == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert leader.replica().log.log_end_offset == 2  # nothing of it is lost


def test_a_fetch_by_a_former_topics_id_is_not_answered_with_the_later_ones_records(
    pool: InProcessPool,
) -> None:
    """Whose slice went by hand: its id is known still, its name is another's (B12)."""
    broker = pool.brokers[1]
    previous = TopicState(TOPIC, TopicId("00000000-0000-0000-0000-000000000002"), 1, 3)
    pool.image_version += 1
    image = pool.image()
    reported = (TopicPush(previous, ()), *image.topics)
    broker.partitions.apply_push(replace(image, topics=reported))
    assert broker.partitions.metadata.topics_by_id[previous.topic_id].topic == TOPIC

    def fetched(topic_id: TopicId) -> PartitionResponse:
        key = ("", topic_id, 0)
        requested = FetchPartition(0, -1, Offset(0), -1, Offset(0), 1_000)
        responses: list[dict[Key, PartitionResponse]] = []
        ConsumerFetch(
            broker.partitions,
            {key: requested},
            FetchLimits(0, 1, 1_000, None),
            scheduler=pool.time,
            clock=pool.time.clock,
            share_bytes=lambda: 1_000,
            in_turns=all_steps,
            respond=responses.append,
        ).start()
        return responses[0][key]

    assert fetched(previous.topic_id).error is ErrorCode.UNKNOWN_TOPIC_ID
    assert fetched(TOPIC_ID).error is ErrorCode.NONE


def test_who_is_told_of_a_former_topic_of_a_name_makes_no_room_for_it(pool: InProcessPool) -> None:
    """Its slice went by hand, so nobody was told that it is over. A process that starts holds the
    later topic's log only, and put that aside for an empty one of the former."""
    previous = TopicState(TOPIC, TopicId("00000000-0000-0000-0000-000000000002"), 1, 3)
    restarted(pool, 1)
    pool.image_version += 1
    image = pool.image()
    reported = TopicPush(previous, image.topics[0].partitions)
    pool.brokers[1].partitions.apply_push(replace(image, topics=(reported, *image.topics)))
    broker = pool.brokers[1]
    assert broker.replica().log.log_end_offset == 1
    assert not list(broker.directory.path.glob("*-stray"))
