"""Which partition a key belongs to: Kafka's murmur2 (org.apache.kafka.common.utils.Utils)."""

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def partition_of_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit variant, as an unsigned number."""
    length = len(data)
    hashed = (0x9747B28C ^ length) & _MASK
    whole = length - length % 4
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        word = word * _M & _MASK
        word ^= word >> 24
        word = word * _M & _MASK
        hashed = hashed * _M & _MASK ^ word
    if tail := data[whole:]:
        hashed ^= int.from_bytes(tail, "little")
        hashed = hashed * _M & _MASK
    hashed ^= hashed >> 13
    hashed = hashed * _M & _MASK
    return hashed ^ hashed >> 15
