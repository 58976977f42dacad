"""A push that is decoded in parts is the push that was sent."""

import asyncio

import msgspec
import pytest
from tidemark_broker.metadata import received_push
from tidemark_broker.metadata.received_push import ReceivedHeartbeat, ReceivedPush
from tidemark_protocol.controller_messages import (
    HeartbeatResponse,
    MalformedMessage,
    MetadataPush,
    TopicPush,
    decode,
    encode,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import Member, PartitionState, TopicState


def a_push(*partition_counts: int) -> MetadataPush:
    return MetadataPush(
        ControllerEpoch(5),
        12,
        True,
        (),
        tuple(a_topic(number, count) for number, count in enumerate(partition_counts)),
        quotas=(),
    )


def a_topic(number: int, partition_count: int) -> TopicPush:
    topic_id = TopicId(f"00000000-0000-0000-0000-{number:012}")
    members = tuple(Member(BrokerId(each), BrokerEpoch(7)) for each in range(3))
    partitions = tuple(
        PartitionState(
            partition,
            (BrokerId(0), BrokerId(1), BrokerId(2)),
            BrokerId(1),
            BrokerEpoch(7),
            LeaderEpoch(3),
            members,
            (),
            PartitionEpoch(9),
            2,
        )
        for partition in range(partition_count)
    )
    state = TopicState(f"topic-{number}", topic_id, partition_count, 3)
    return TopicPush(state, partitions, is_retained=number == 1)


def received(push: MetadataPush | None) -> ReceivedHeartbeat:
    return decode(encode(HeartbeatResponse(ErrorCode.NONE, push=push)), ReceivedHeartbeat)


@pytest.mark.parametrize(
    "push",
    [a_push(), a_push(1), a_push(0, 3, 50, 1), a_push(700, 2, 2, 900, 1), a_push(*[1] * 300)],
    ids=["no topics", "one", "a few", "large and small topics", "many small topics"],
)
@pytest.mark.parametrize("part_bytes", [1, 20_000, 2**30])
def test_the_decoded_push_is_the_one_that_was_sent(
    push: MetadataPush, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(received_push, "PART_BYTES", part_bytes)
    heartbeat = received(push)
    assert heartbeat.has_push
    found = ReceivedPush(heartbeat.push)
    assert (found.controller_epoch, found.image_version) == (5, 12)
    assert asyncio.run(found.decoded()) == push


def test_a_heartbeat_may_have_no_push() -> None:
    assert not received(None).has_push


def test_others_run_while_a_large_push_is_decoded() -> None:
    push = ReceivedPush(received(a_push(10_000)).push)

    async def turns_meanwhile() -> int:
        decoding = asyncio.ensure_future(push.decoded())
        turns = 0
        while not decoding.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(turns_meanwhile()) >= 10


def test_what_is_no_push_is_named() -> None:
    with pytest.raises(MalformedMessage, match="image_version"):
        ReceivedPush(msgspec.Raw(b'{"controller_epoch": 1}'))
    text = encode(a_push(2)).replace(b'"partition":1', b'"partition":"x"')
    with pytest.raises(MalformedMessage, match="partition"):
        asyncio.run(ReceivedPush(msgspec.Raw(text)).decoded())
