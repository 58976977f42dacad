"""The settings of a log, by Kafka's names and with its defaults where it has them."""

from dataclasses import dataclass

from tidemark_broker.storage.record_batch import HEADER_BYTES

MAX_SEGMENT_BYTES = 2**31 - 1  # positions in an index are int32


@dataclass(frozen=True, slots=True)
class LogSettings:
    segment_bytes: int = 1024 * 1024 * 1024  # a segment is rolled before it grows past this
    segment_ms: int = 7 * 24 * 3600 * 1000  # by record timestamps, from the segment's first batch
    index_interval_bytes: int = 4096  # bytes of log between two index entries
    max_batch_bytes: int = 1_048_588  # what a producer may send; followers take what leaders have
    allow_network_filesystem: bool = False  # for tests on odd machines; never with two brokers

    def __post_init__(self) -> None:
        for name, least, most in (
            ("segment_bytes", HEADER_BYTES, MAX_SEGMENT_BYTES),
            ("segment_ms", 1, 2**63 - 1),
            ("index_interval_bytes", 0, MAX_SEGMENT_BYTES),
            ("max_batch_bytes", HEADER_BYTES, MAX_SEGMENT_BYTES),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name}: expected {least} to {most}, found {value}")
