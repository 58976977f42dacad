"""Which partition a record goes to, as Kafka's own producers choose it.

Keys: toPositive(murmur2(key)) % partition count (Kafka's `Utils.murmur2`, seed 0x9747b28c), so
that a key lands where a Java client would put it. Pure; keyless records are the caller's matter.
"""

import struct

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """Kafka's signed 32-bit murmur2."""
    length = len(data)
    h = _SEED ^ length
    words = length // 4
    for k in struct.unpack_from(f"<{words}I", data):
        k = (k * _M) & _MASK
        h = ((h * _M) & _MASK) ^ (((k ^ (k >> 24)) * _M) & _MASK)
    tail = data[words * 4 :]
    if tail:
        h = ((h ^ int.from_bytes(tail, "little")) * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & 0x80000000 else h


def partition_for_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
