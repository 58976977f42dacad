"""A slice that holds summaries in place of samples: what an earlier run made of them."""

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
    """Summaries in place of samples; what reads slices hands them on as they are."""

    path: Path
    start_ms: int
    end_ms: int

    @property
    def place(self) -> str:
        return str(self.path)

    def summaries(self) -> Iterator[pa.RecordBatch]:
        """Raises SourceError."""
        try:
            yield from pq.read_table(self.path).cast(SCHEMA).to_batches()
        except (pa.ArrowException, OSError) as error:
            raise unreadable(self.path, str(error)) from error

    def read(self) -> Iterator[SampleBatch]:
        """It has no samples."""
        return iter(())


def unreadable(path: Path, found: str) -> SourceError:
    return SourceError(
        str(path),
        expected="a checkpoint of this audit",
        found=found,
        to_do="name another --checkpoint directory, or remove this one",
    )
