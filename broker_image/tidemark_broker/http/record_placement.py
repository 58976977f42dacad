"""Choose the partition of each record of a request, and find the broker that leads it.

It is the record's own `partition`; else its key decides by Kafka's murmur2; else (keyless) one
partition for all of a request, in turn among those that this broker leads, so that a redirected
request stays where it was sent; in turn among all that have a leader if it leads none.

Keys: toPositive(murmur2(key)) % partition count (Kafka's `Utils.murmur2`, seed 0x9747b28c), so that
a key is in the partition that a Java client would choose.
"""

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import TopicState

from tidemark_broker.http.produce_bodies import ProducedRecord
from tidemark_broker.metadata.metadata_cache import Leader, MetadataCache

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """Return Kafka's signed 32-bit murmur2."""
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


KEY_BYTES_PER_SLICE = 128 * 1024  # hashed (about 10 ms) before others get a turn


@dataclass(slots=True)
class TopicPartitions:
    """The partitions of records; places are indexes into the request's records, in order."""

    partitions: list[int]  # of each record
    here: dict[int, list[int]] = field(default_factory=dict)  # partition -> places
    elsewhere: dict[BrokerId, list[int]] = field(default_factory=dict)  # leader -> places
    leaderless: dict[int, list[int]] = field(default_factory=dict)  # partition, maybe unknown
    a_leader_elsewhere: tuple[Leader, int] | None = None  # with one of its partitions

    @property
    def only_leader(self) -> tuple[Leader, int] | None:
        """Return the one other broker that leads everything, or None."""
        if self.here or self.leaderless or len(self.elsewhere) != 1:
            return None
        return self.a_leader_elsewhere


class RecordPlacer:
    def __init__(self, metadata: MetadataCache, broker_id: BrokerId) -> None:
        self._metadata = metadata
        self._broker_id = broker_id
        self._turn = count()

    async def place(self, topic: TopicState, records: Sequence[ProducedRecord]) -> TopicPartitions:
        placement = TopicPartitions(await self._partitions(topic, records))
        groups: dict[int, list[int]] = {}
        for place, partition in enumerate(placement.partitions):
            groups.setdefault(partition, []).append(place)
        for partition, places in groups.items():
            leader = self._metadata.leader_of(topic.topic, partition)
            if leader is None:
                placement.leaderless[partition] = places
            elif leader.broker_id == self._broker_id:
                placement.here[partition] = places
            else:
                placement.elsewhere.setdefault(leader.broker_id, []).extend(places)
                placement.a_leader_elsewhere = leader, partition
        for places in placement.elsewhere.values():
            places.sort()
        return placement

    async def _partitions(self, topic: TopicState, records: Sequence[ProducedRecord]) -> list[int]:
        partitions: list[int] = []
        keyless: int | None = None
        hashed_bytes = 0
        for record in records:
            partition = record.partition
            if partition is None and record.key is not None:
                partition = partition_for_key(record.key, topic.partition_count)
                hashed_bytes += len(record.key)
                if hashed_bytes > KEY_BYTES_PER_SLICE:
                    hashed_bytes = 0
                    await asyncio.sleep(0)
            elif partition is None:
                if keyless is None:
                    keyless = self._keyless_partition(topic)
                partition = keyless
            partitions.append(partition)
        return partitions

    def _keyless_partition(self, topic: TopicState) -> int:
        led: list[int] = []
        led_here: list[int] = []
        for partition in range(topic.partition_count):
            state = self._metadata.partition(topic.topic, partition)
            if state is not None and state.has_leader:
                led.append(partition)
                if state.leader == self._broker_id:
                    led_here.append(partition)
        candidates = led_here or led or range(topic.partition_count)
        return candidates[next(self._turn) % len(candidates)]
