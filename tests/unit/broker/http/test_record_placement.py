"""Keys land where Kafka's Java client would put them."""

import pytest
from tidemark_broker.http.record_placement import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("data", "expected"),
    [  # Kafka's own UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected


def test_a_negative_hash_gives_a_partition_in_range() -> None:
    assert partition_for_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7


def test_an_empty_key_has_a_partition() -> None:
    assert 0 <= partition_for_key(b"", 3) < 3
