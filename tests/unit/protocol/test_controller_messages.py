"""Messages between brokers and controller: what comes back, and what is rejected where."""

from dataclasses import dataclass

import pytest
from tidemark_protocol import controller_messages
from tidemark_protocol.controller_messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerState,
    ClientQuota,
    Endpoints,
    HeartbeatRequest,
    HeartbeatResponse,
    ListenerAddress,
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

REQUEST = AllocateProducerIdsRequest("shop/default", BrokerId(1), BrokerEpoch(7))
REQUEST_JSON = b'{"pool":"shop/default","broker_id":1,"broker_epoch":7}'
MEMBER = Member(BrokerId(1), BrokerEpoch(7))
PUSH = MetadataPush(
    ControllerEpoch(3),
    image_version=12,
    is_full=True,
    brokers=(BrokerState(BrokerId(1), BrokerEpoch(7), True, False, Endpoints("h", 1, 2, "u")),),
    topics=(
        TopicPush(
            TopicState("t", TopicId("id"), 1, 1, config={"retention.ms": "5"}),
            (
                PartitionState(
                    0,
                    (BrokerId(1),),
                    BrokerId(1),
                    BrokerEpoch(7),
                    LeaderEpoch(2),
                    (MEMBER,),
                    (),
                    PartitionEpoch(4),
                    1,
                ),
            ),
            is_retained=True,
        ),
    ),
    quotas=(ClientQuota("", fetch_bytes_per_second=9, request_percentage=0.5),),
    addresses=(ListenerAddress("external", BrokerId(1), "e", 9094),),
)


def test_message_is_the_json_of_its_fields() -> None:
    assert encode(REQUEST) == REQUEST_JSON
    response = AllocateProducerIdsResponse(ErrorCode.NOT_CONTROLLER, controller_address="h:1")
    assert encode(response) == (
        b'{"error":41,"message":"","controller_epoch":-1,"controller_address":"h:1",'
        b'"first_producer_id":-1,"count":0}'
    )


@pytest.mark.parametrize("push", [None, PUSH])
def test_decoded_response_equals_the_encoded_one(push: MetadataPush | None) -> None:
    response = HeartbeatResponse(ErrorCode.NONE, is_fenced=False, push=push)
    assert decode(encode(response), HeartbeatResponse) == response


def test_fields_of_a_newer_version_are_ignored_and_absent_ones_have_their_defaults() -> None:
    found = decode(b'{"error":77,"of_a_newer_version":[1]}', HeartbeatResponse)
    assert found == HeartbeatResponse(ErrorCode.STALE_BROKER_EPOCH)


def test_heartbeat_of_a_broker_that_reports_no_disk_is_read() -> None:
    old = (
        b'{"pool":"shop/default","broker_id":1,"broker_epoch":7,"incarnation":"a",'
        b'"applied_controller_epoch":3,"applied_image_version":12,"wants_to_serve":true,'
        b'"wants_to_stop":false,"number":4}'
    )
    found = decode(old, HeartbeatRequest)
    assert (found.number, found.disk_free_bytes, found.disk_size_bytes) == (4, -1, -1)


def test_controller_of_an_earlier_version_reads_a_heartbeat_with_a_disk() -> None:
    """It decodes into the fields that it knows, and leaves others out."""

    @dataclass(frozen=True, slots=True)
    class EarlierRequest:
        pool: str
        number: int = 0

    request = HeartbeatRequest(
        *("p", BrokerId(1), BrokerEpoch(7), "a", ControllerEpoch(3), 12, True, False),
        number=4,
        disk_free_bytes=10,
        disk_size_bytes=100,
    )
    assert decode(encode(request), EarlierRequest) == EarlierRequest("p", 4)


@pytest.mark.parametrize("size", range(len(REQUEST_JSON)))
def test_each_prefix_of_a_message_is_rejected(size: int) -> None:
    with pytest.raises(MalformedMessage, match=r"^AllocateProducerIdsRequest: "):
        decode(REQUEST_JSON[:size], AllocateProducerIdsRequest)


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        (REQUEST_JSON.replace(b":1", b':"1"'), "`int`, got `str` - at `$.broker_id`"),
        (REQUEST_JSON.replace(b":1", b":1.5"), "`int`, got `float` - at `$.broker_id`"),
        (REQUEST_JSON.replace(b":7", b":null"), "`int`, got `null` - at `$.broker_epoch`"),
        (b'{"pool":"p","broker_id":1}', "missing required field `broker_epoch`"),
        (b"[]", "Expected `object`, got `array`"),
    ],
)
def test_rejected_message_names_the_place(changed: bytes, place: str) -> None:
    with pytest.raises(MalformedMessage) as error:
        decode(changed, AllocateProducerIdsRequest)
    assert place in str(error.value)


def test_unknown_error_code_is_rejected() -> None:
    with pytest.raises(MalformedMessage, match=r"Invalid enum value 9999 - at `\$.error`"):
        decode(b'{"error":9999}', HeartbeatResponse)


def test_message_above_the_limit_is_rejected_before_it_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller_messages, "MAX_MESSAGE_BYTES", len(REQUEST_JSON))
    assert decode(REQUEST_JSON, AllocateProducerIdsRequest) == REQUEST
    with pytest.raises(MalformedMessage, match=f"at most {len(REQUEST_JSON)} bytes, found"):
        decode(REQUEST_JSON + b" ", AllocateProducerIdsRequest)


def test_message_that_is_nested_without_end_is_malformed() -> None:
    body = REQUEST_JSON.removesuffix(b"}") + b',"more":' + b"[" * 100_000 + b"}"
    with pytest.raises(MalformedMessage):
        decode(body, AllocateProducerIdsRequest)


def test_text_that_is_not_utf_8_is_malformed() -> None:
    body = b'{"pool":"\xff\xfe","broker_id":1,"broker_epoch":2}'
    with pytest.raises(MalformedMessage, match=r"^AllocateProducerIdsRequest: "):
        decode(body, AllocateProducerIdsRequest)
