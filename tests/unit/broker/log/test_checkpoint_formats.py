"""Kafka's small files: written byte for byte, read whole or not at all."""

import pytest
from tidemark_broker.log import checkpoint_formats
from tidemark_protocol.ids import LeaderEpoch, Offset

from tests.support.log_fixtures import TOPIC_ID


def test_offsets_are_written_as_kafka_writes_them():
    data = checkpoint_formats.encode_offsets({("orders", 0): 5, ("a.b_c-d", 11): 2**40})
    assert data.startswith(b"0\n3\norders 0 5\na.b_c-d 11 1099511627776\n~crc32c 0 ")
    assert checkpoint_formats.decode_offsets(data) == {("orders", 0): 5, ("a.b_c-d", 11): 2**40}


def test_offsets_that_kafka_wrote_have_no_checksum():
    assert checkpoint_formats.decode_offsets(b"0\n1\norders 0 5\n") == {("orders", 0): 5}


def test_no_flipped_bit_makes_another_offset_of_what_was_written():
    offsets = {("orders", 0): 1234, ("orders", 1): 0}
    data = checkpoint_formats.encode_offsets(offsets)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            found = checkpoint_formats.decode_offsets(bytes(flipped))
        except checkpoint_formats.MalformedFile:
            continue
        # The name of the checksum's entry was hit: the others are as they were.
        assert {at: found.get(at) for at in offsets} == offsets


def test_no_flipped_bit_makes_another_epoch_of_what_was_written():
    entries = [(LeaderEpoch(0), Offset(0)), (LeaderEpoch(2), Offset(142))]
    data = checkpoint_formats.encode_epochs(entries)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(checkpoint_formats.MalformedFile):
            checkpoint_formats.decode_epochs(bytes(flipped))


def test_an_empty_file_has_no_entries():
    assert checkpoint_formats.decode_offsets(b"") == {}
    assert checkpoint_formats.decode_epochs(b"") == []


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"0\n",
        b"0\n2\norders 0 5\n",
        b"0\n1\norders 0\n",
        b"0\n1\norders 0 -5\n",
        b"0\n1\norders 0 5 6\n",
        b"0\nx\n",
        b"\x00" * 40,
        b"\xff\xfe",
        b"0\n1\norders 0 " + b"9" * 30,
        b"0\n1\norders 0 14",
    ],
)
def test_a_file_that_is_not_whole_is_not_used(data):
    with pytest.raises(checkpoint_formats.MalformedFile):
        checkpoint_formats.decode_offsets(data)


def test_epochs_must_rise():
    data = checkpoint_formats.encode_epochs([(1, 0), (3, 7)])
    assert data.startswith(b"0\n3\n1 0\n3 7\n2147483647 46116860")
    assert checkpoint_formats.decode_epochs(data) == [(1, 0), (3, 7)]
    with pytest.raises(checkpoint_formats.MalformedFile, match="3@7 after 4@5"):
        checkpoint_formats.decode_epochs(b"0\n2\n4 5\n3 7\n")
    assert checkpoint_formats.decode_epochs(b"0\n2\n1 0\n3 7\n") == [(1, 0), (3, 7)]


def test_the_topic_id_is_written_in_22_characters():
    data = checkpoint_formats.encode_partition_metadata(TOPIC_ID)
    assert data == b"version: 0\ntopic_id: a6e4EJ2tEdGAtADAT9QwyA"
    assert checkpoint_formats.decode_partition_metadata(data) == TOPIC_ID
    for bad in (b"", b"version: 1\ntopic_id: a6e4EJ2tEdGAtADAT9QwyA", b"version: 0\ntopic_id: x"):
        with pytest.raises(checkpoint_formats.MalformedFile):
            checkpoint_formats.decode_partition_metadata(bad)


def test_the_stop_proof_is_kafkas_json():
    assert checkpoint_formats.encode_clean_stop(7) == b'{"version": 0, "brokerEpoch": 7}'
    assert checkpoint_formats.decode_clean_stop(b'{"version":0,"brokerEpoch":7}') == 7
    for bad in (b"", b"{}", b'{"version":1,"brokerEpoch":7}', b'{"version":0,"brokerEpoch":true}'):
        with pytest.raises(checkpoint_formats.MalformedFile):
            checkpoint_formats.decode_clean_stop(bad)


def test_properties_skip_comments_and_refuse_other_lines():
    data = b"#Fri\n\nversion=1\nnode.id = 3\n"
    assert checkpoint_formats.decode_properties(data) == {"version": "1", "node.id": "3"}
    with pytest.raises(checkpoint_formats.MalformedFile, match="name=value"):
        checkpoint_formats.decode_properties(b"nonsense\n")


def test_a_torn_epoch_file_is_never_taken_for_a_whole_one():
    """Cut after any byte: `2 142` must not become epoch 2 from offset 1."""
    whole = checkpoint_formats.encode_epochs(
        ((LeaderEpoch(0), Offset(0)), (LeaderEpoch(2), Offset(142)))
    )
    for size_bytes in range(1, len(whole)):
        with pytest.raises(checkpoint_formats.MalformedFile):
            checkpoint_formats.decode_epochs(whole[:size_bytes])
