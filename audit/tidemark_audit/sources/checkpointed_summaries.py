"""Read summaries that an earlier run made, in place of samples."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark_audit.aggregation.samples import SampleBatch
from tidemark_audit.aggregation.summaries import SCHEMA
from tidemark_audit.sources.source import SourceError


@dataclass(frozen=True, slots=True)
class SummarySlice:
    """Provide a slice of summaries in place of samples; readers return them unchanged."""

    path: Path
    start_ms: int
    end_ms: int

    @property
    def place(self) -> str:
        return str(self.path)

    def summaries(self) -> Iterator[pa.RecordBatch]:
        """Yield the summaries.

        Raises SourceError.
        """
        try:
            yield from pq.read_table(self.path).cast(SCHEMA).to_batches()
        except (pa.ArrowException, OSError) as error:
            raise unreadable(self.path, str(error)) from error

    def read(self) -> Iterator[SampleBatch]:
        """Return no samples."""
        return iter(())


def unreadable(path: Path, found: str) -> SourceError:
    return SourceError(
        str(path),
        expected="a checkpoint of this audit",
        found=found,
        to_do="name another --checkpoint directory, or remove this one",
    )
