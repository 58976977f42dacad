"""How much of record batches is opened in one piece of work for the broker's loop."""

from collections.abc import Iterator
from dataclasses import dataclass

from tidemark_broker.storage.errors import UnsupportedCompression
from tidemark_broker.storage.record_batch import BatchHeader, Record, opened, records_of

MOST_RECORDS = 50_000
MOST_INFLATED_BYTES = 8 * 1024 * 1024


@dataclass(slots=True)
class OpeningBudget:
    """What is left for one piece of work: some hundred milliseconds."""

    batches: int = MOST_RECORDS
    records: int = MOST_RECORDS
    inflated_bytes: int = MOST_INFLATED_BYTES

    def take(self, header: BatchHeader) -> None:
        """Before a batch is opened, or read to be. Raises UnsupportedCompression."""
        self.batches -= 1
        self.records -= header.record_count
        if self.batches < 0 or self.records < 0:
            raise UnsupportedCompression(f"more than {MOST_RECORDS} records are not opened at once")

    def records_of(
        self, header: BatchHeader, batch: memoryview, *, refuses_odd_times: bool = False
    ) -> Iterator[Record]:
        """As `read_records`: raises CorruptBatch, UnsupportedCompression."""
        if header.compression and self.inflated_bytes <= 0:
            text = f"more than {MOST_INFLATED_BYTES} inflated bytes are not opened at once"
            raise UnsupportedCompression(text)
        body = opened(header, batch, self.inflated_bytes)
        if header.compression:
            self.inflated_bytes -= len(body)
        return records_of(header, body, refuses_odd_times=refuses_odd_times)
