"""Records of the offsets topic: Kafka's bytes, and nothing believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark_broker.coordinator.core.offsets_records import (
    CommittedOffset,
    GroupKey,
    GroupMetadata,
    MalformedGroupRecord,
    MemberMetadata,
    OffsetKey,
    decode_key,
    decode_metadata,
    decode_offset,
    encode_key,
    encode_metadata,
    encode_offset,
    partition_of_group,
)

MEMBER = MemberMetadata("m-1", "i-1", "client", "/10.0.0.1", 300_000, 45_000, b"sub", b"take")
GROUP = GroupMetadata("consumer", 3, "range", "m-1", 1_700_000_000_000, (MEMBER,))


@pytest.mark.parametrize(
    ("group_id", "java_hash_code"),
    [("", 0), ("a", 97), ("ab", 3105), ("hello", 99162322), ("polygenelubricants", -(2**31))],
)
def test_a_groups_partition_is_javas_hash_without_its_sign(
    group_id: str, java_hash_code: int
) -> None:
    assert partition_of_group(group_id, 50) == (java_hash_code & 0x7FFFFFFF) % 50


def test_characters_beyond_16_bits_count_as_two() -> None:
    high, low = 0xD83D, 0xDE00
    assert partition_of_group("\U0001f600", 2**31 - 1) == (high * 31 + low) % (2**31 - 1)


def test_keys_have_kafkas_bytes() -> None:
    assert encode_key(OffsetKey("g", "t", 7)) == bytes.fromhex("0001 0001 67 0001 74 00000007")
    assert encode_key(GroupKey("g")) == bytes.fromhex("0002 0001 67")


def test_an_offset_has_kafkas_bytes() -> None:
    assert encode_offset(CommittedOffset(5, 2, "x", 9)) == bytes.fromhex(
        "0003 0000000000000005 00000002 0001 78 0000000000000009"
    )


def test_an_offset_with_its_own_retention_is_written_as_version_1() -> None:
    committed = CommittedOffset(5, -1, "", 9, 19)
    assert encode_offset(committed)[:2] == b"\x00\x01"
    assert decode_offset(encode_offset(committed)) == committed


def test_older_values_are_read() -> None:
    version_0 = bytes.fromhex("0000 0000000000000005 0001 78 0000000000000009")
    version_2 = bytes.fromhex("0002 0000000000000005 0001 78 0000000000000009")
    assert decode_offset(version_0) == decode_offset(version_2) == CommittedOffset(5, -1, "x", 9)


def test_a_groups_metadata_comes_back() -> None:
    assert decode_metadata(encode_metadata(GROUP)) == GROUP


def test_a_group_of_version_0_waits_as_long_for_a_rebalance_as_for_a_heartbeat() -> None:
    raw = bytes.fromhex("0000 0001 63 00000001 0001 72 0001 6d 00000001")
    raw += bytes.fromhex("0001 6d 0001 63 0001 68 00000064 00000000 00000000")
    member = MemberMetadata("m", None, "c", "h", 100, 100, b"", b"")
    assert decode_metadata(raw) == GroupMetadata("c", 1, "r", "m", -1, (member,))


def test_keys_of_other_kinds_are_passed_over() -> None:
    assert decode_key(b"\x00\x03\x00\x01g") is None


@given(st.binary(max_size=64))
def test_hostile_bytes_are_refused_by_name(raw: bytes) -> None:
    for decode in (decode_key, decode_offset, decode_metadata):
        try:
            decode(raw)
        except MalformedGroupRecord as error:
            assert str(error)


def test_every_cut_of_a_value_is_refused() -> None:
    raw = encode_metadata(GROUP)
    for size in range(len(raw)):
        with pytest.raises(MalformedGroupRecord):
            decode_metadata(raw[:size])
