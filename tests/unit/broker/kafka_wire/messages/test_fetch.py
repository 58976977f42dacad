"""Fetch v15 to v18: bytes as Kafka's, round trips, and every cut or mangled byte refused."""

import random

import pytest
from tidemark_broker.kafka_wire.messages.current_leaders import CurrentLeader
from tidemark_broker.kafka_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionResponse,
    TopicResponse,
    decode_fetch_request,
    decode_fetch_response,
    encode_fetch_request,
    encode_fetch_response,
)
from tidemark_broker.kafka_wire.messages.frames import read_request_header
from tidemark_broker.kafka_wire.messages.primitives import MalformedFrame, Reader
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import TopicId

ONE = TopicId("00112233-4455-6677-8899-aabbccddeeff")
TWO = TopicId("00000000-0000-0000-0000-000000000002")

REQUEST = FetchRequest(
    max_wait_ms=500,
    min_bytes=1,
    max_bytes=10_485_760,
    topics=(
        FetchTopic(
            ONE, (FetchPartition(0, 5, 100, 4, 0, 1048576), FetchPartition(3, 6, 0, -1, 0, 1))
        ),
        FetchTopic(TWO, (FetchPartition(1, 7, 2**40, 7, 2**39, 2**31 - 1),)),
    ),
    replica_id=2,
    replica_epoch=2**33,
    cluster_id="kJ3-tidemark",
)

RESPONSE = FetchResponse(
    77,
    ErrorCode.NONE,
    (
        TopicResponse(
            ONE,
            (
                PartitionResponse(0, ErrorCode.NONE, 90, 10, b"r" * 500),
                PartitionResponse(3, ErrorCode.NONE, 90, 10, diverging_epoch=(4, 80)),
            ),
        ),
        TopicResponse(
            TWO,
            (
                PartitionResponse(
                    1, ErrorCode.FENCED_LEADER_EPOCH, current_leader=CurrentLeader(3, 9)
                ),
            ),
        ),
    ),
)


def decoded(frame: bytes, version: int = 17) -> FetchRequest:
    reader = Reader(memoryview(frame)[4:])
    header = read_request_header(reader)
    assert (header.api_key, header.api_version, header.correlation_id) == (1, version, 9)
    return decode_fetch_request(reader, version)


def whole(response: FetchResponse) -> bytes:
    return b"".join(encode_fetch_response(response))


@pytest.mark.parametrize("version", [15, 16, 17, 18])
def test_requests_round_trip(version: int) -> None:
    frame = encode_fetch_request(REQUEST, correlation_id=9, client_id="me", version=version)
    assert decoded(frame, version) == REQUEST


def test_a_consumers_request_names_no_replica() -> None:
    request = FetchRequest(500, 1, 1024, (), rack="west")
    frame = encode_fetch_request(request, correlation_id=9, client_id="me")
    assert decoded(frame) == request


def test_request_bytes_are_those_of_the_kafka_protocol() -> None:
    request = FetchRequest(
        500, 1, 1024, (FetchTopic(ONE, (FetchPartition(2, 5, 100, 4, 7, 2048),)),), 3, 8
    )
    frame = encode_fetch_request(request, correlation_id=9, client_id="me")
    assert frame.hex(" ") == (
        "00 00 00 68 "  # length
        "00 01 00 11 00 00 00 09 00 02 6d 65 00 "  # Fetch, v17, correlation id, client id, tags
        "00 00 01 f4 00 00 00 01 00 00 04 00 00 "  # max wait, min bytes, max bytes, isolation
        "00 00 00 00 ff ff ff ff "  # session id and epoch: a full fetch, no session
        "02 00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff "  # one topic
        "02 00 00 00 02 00 00 00 05 00 00 00 00 00 00 00 64 "  # partition, leader epoch, offset
        "00 00 00 04 00 00 00 00 00 00 00 07 00 00 08 00 00 "  # last epoch, log start, max bytes
        "00 01 01 "  # topic tags, no forgotten topics, empty rack
        "01 01 0d 00 00 00 03 00 00 00 00 00 00 00 08 00"  # tag 1: ReplicaState
    )


def test_unknown_tags_are_skipped() -> None:
    # v17's replica directory id (tag 0 of a partition), as Kafka's own followers send it.
    frame = bytearray(
        encode_fetch_request(
            FetchRequest(
                500, 1, 1024, (FetchTopic(ONE, (FetchPartition(2, 5, 100, 4, 7, 2048),)),)
            ),
            correlation_id=9,
            client_id="me",
        )
    )
    end_of_partition = len(frame) - 5
    assert frame[end_of_partition] == 0
    directory, high_watermark = b"\x00\x10" + b"d" * 16, b"\x01\x08" + b"h" * 8  # v18
    frame[end_of_partition : end_of_partition + 1] = b"\x02" + directory + high_watermark
    assert decoded(bytes(frame)).topics[0].partitions == (FetchPartition(2, 5, 100, 4, 7, 2048),)


@pytest.mark.parametrize("version", [-1, 0, 14, 19, 2**15 - 1])
def test_other_versions_are_refused(version: int) -> None:
    with pytest.raises(MalformedFrame, match="expected version 15 to 18"):
        decode_fetch_request(Reader(b""), version)


def test_responses_round_trip() -> None:
    assert decode_fetch_response(whole(RESPONSE)[4:]) == RESPONSE


def test_records_are_not_copied_into_the_response() -> None:
    records = b"r" * 500
    response = FetchResponse(
        1,
        ErrorCode.NONE,
        (TopicResponse(ONE, (PartitionResponse(0, ErrorCode.NONE, 9, 0, records),)),),
    )
    assert any(part is records for part in encode_fetch_response(response))


def test_an_error_code_of_a_newer_broker_is_a_server_error() -> None:
    frame = bytearray(whole(FetchResponse(1, ErrorCode.NONE))[4:])
    frame[9:11] = (30_000).to_bytes(2, "big")
    assert decode_fetch_response(frame).error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_every_cut_of_a_request_is_refused() -> None:
    frame = encode_fetch_request(REQUEST, correlation_id=9, client_id="me")
    for end in range(16, len(frame) - 1):
        reader = Reader(memoryview(frame)[4:end])
        with pytest.raises(MalformedFrame):
            read_request_header(reader)
            decode_fetch_request(reader, 17)


def test_every_cut_of_a_response_is_refused() -> None:
    frame = whole(RESPONSE)[4:]
    for end in range(len(frame) - 1):
        with pytest.raises(MalformedFrame):
            decode_fetch_response(frame[:end])


def test_mangled_bytes_never_raise_anything_else() -> None:
    randomness = random.Random(7)
    request = encode_fetch_request(REQUEST, correlation_id=9, client_id="me")[4:]
    response = whole(RESPONSE)[4:]
    for _ in range(3000):
        for original in (request, response):
            mangled = bytearray(original)
            for _ in range(randomness.randint(1, 4)):
                mangled[randomness.randrange(len(mangled))] = randomness.randrange(256)
            try:
                if original is request:
                    reader = Reader(mangled)
                    read_request_header(reader)
                    decode_fetch_request(reader, 17)
                else:
                    decode_fetch_response(mangled)
            except MalformedFrame:
                pass
