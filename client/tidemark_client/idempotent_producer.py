"""Produce batches that may be sent again in doubt: each is in the log once.

A producer writes to one partition, one batch at a time, because HTTP requests on several
connections may overtake each other and sequences may not. For more in flight use several producers:
each has its own identity, and order between them is not guaranteed. A batch in doubt at a deadline
costs an epoch: the next batch uses a new one, which fences what is still under way.

`murmur2` is Kafka's hash of keys (org.apache.kafka.common.utils.Utils).
"""

import asyncio
from collections.abc import Sequence

from tidemark_client.client import TidemarkClient
from tidemark_client.outcomes import (
    Acknowledged,
    BrokerError,
    Outcome,
    OutgoingRecord,
    ProducerIdentity,
    Rejected,
    Unknown,
)

SEQUENCES = 2**31
FORGOTTEN = "UNKNOWN_PRODUCER_ID"  # quiet for longer than producer.id.expiration.ms
MOST_TRIES = 2  # of one batch: as it is, and once more under a new epoch when it was forgotten


class IdempotentProducer:
    """A producer of one partition; `produce` calls of several tasks run one after the other."""

    def __init__(self, client: TidemarkClient, topic: str, partition: int) -> None:
        self._client = client
        self._topic = topic
        self._partition = partition
        self._identity: ProducerIdentity | None = None
        self._needs_new_epoch = False
        self._next_sequence = 0
        self._sending = asyncio.Lock()

    async def produce(
        self,
        records: Sequence[OutgoingRecord],
        *,
        acks: str | None = None,
        timeout_ms: int | None = None,
    ) -> Outcome:
        """Produce as `TidemarkClient.produce` does, and retry in doubt too.

        `timeout_ms` counts from when the call's turn has come.
        """
        async with self._sending:
            loop = asyncio.get_running_loop()
            limit_ms = timeout_ms or self._client.settings.timeout_ms
            deadline = loop.time() + limit_ms / 1000
            outcome: Outcome = Rejected("REQUEST_TIMED_OUT", "no producer ID received in time")
            for _ in range(MOST_TRIES):
                left_ms = int((deadline - loop.time()) * 1000)
                if left_ms <= 0:
                    break
                outcome = await self._try(records, acks=acks, timeout_ms=left_ms)
                if not (isinstance(outcome, Rejected) and outcome.error == FORGOTTEN):
                    break
            return outcome

    async def _try(
        self, records: Sequence[OutgoingRecord], *, acks: str | None, timeout_ms: int
    ) -> Outcome:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                identity = await self._current_identity()
        except TimeoutError:
            return Rejected("REQUEST_TIMED_OUT", "no broker returned a producer ID in time")
        except BrokerError as rejected:
            return Rejected(rejected.error, rejected.message)
        self._needs_new_epoch = True  # also if the caller gives up while it is on its way
        outcome = await self._client.produce(
            self._topic,
            self._partition,
            records,
            acks=acks,
            timeout_ms=max(1, int((deadline - loop.time()) * 1000)),
            numbered_as=(identity, self._next_sequence),
        )
        match outcome:
            case Acknowledged():
                self._next_sequence = (self._next_sequence + len(records)) % SEQUENCES
                self._needs_new_epoch = False
            case Rejected(error=error):
                self._needs_new_epoch = error == FORGOTTEN
            case Unknown():
                pass
        return outcome

    async def _current_identity(self) -> ProducerIdentity:
        if self._identity is None or self._needs_new_epoch:
            self._identity = await self._client.init_producer(self._identity)
            self._next_sequence = 0
            self._needs_new_epoch = False
        return self._identity


_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def partition_of_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit variant of the hash, as an unsigned number."""
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
