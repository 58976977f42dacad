"""All replicas of this broker, and the one way in for HTTP, the Kafka listener and /metrics.

Synchronous: one event loop owns it, nothing here awaits but `replica_digest`.
"""

from collections.abc import Callable

from tidemark_broker.runtime.metadata import MetadataCache
from tidemark_broker.runtime.results import (
    FetchResult,
    FollowerSnapshot,
    LeaderAddress,
    OffsetsResult,
    PartitionSnapshot,
    ProduceResult,
    ReplicaView,
)

__all__ = [
    "FetchResult",
    "FollowerSnapshot",
    "LeaderAddress",
    "OffsetsResult",
    "PartitionSnapshot",
    "Partitions",
    "ProduceResult",
    "ReplicaView",
]


class Partitions:
    """The seam: `done` callbacks are called exactly once, maybe before the call returns."""

    metadata: MetadataCache

    def produce(
        self,
        topic: str,
        partition: int,
        batches: memoryview,
        *,
        acks: int,
        timeout_ms: int,
        done: Callable[[ProduceResult], None],
    ) -> None:
        """Append whole record batches. `batches` is not kept after the call returns."""
        raise NotImplementedError

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        done: Callable[[FetchResult], None],
    ) -> Callable[[], None]:
        """A consumer's read below the high watermark. The returned call cancels a parked one:
        `done` is not called after that."""
        raise NotImplementedError

    def offsets(self, topic: str, partition: int) -> OffsetsResult:
        raise NotImplementedError

    def replica(self, topic: str, partition: int) -> ReplicaView | None:
        raise NotImplementedError

    async def replica_digest(self, topic: str, partition: int, to_offset: int) -> str:
        """SHA-256 (hex) of the batches from log start that end below `to_offset`. KeyError if
        there is no such replica here."""
        raise NotImplementedError

    def snapshot(self) -> tuple[PartitionSnapshot, ...]:
        raise NotImplementedError
