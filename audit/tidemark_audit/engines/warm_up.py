"""Starts and ends Spark once, for its class archive: part of building an image.

python -m tidemark_audit.engines.warm_up, with TIDEMARK_SPARK_ARCHIVE naming the directory.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow

from tidemark_audit.engines.session import spark_session


def main() -> None:
    spark = spark_session(None, archive_directory=Path(os.environ["TIDEMARK_SPARK_ARCHIVE"]))

    def same(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        yield from batches

    # What an audit does, so that its classes are in the archive.
    count = spark.range(4, numPartitions=2).mapInArrow(same, "id long").toArrow().num_rows
    spark.stop()
    sys.exit(0 if count == 4 else f"warm-up: expected 4 rows, found {count}")


if __name__ == "__main__":
    main()
