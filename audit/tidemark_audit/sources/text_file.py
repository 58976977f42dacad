"""Read text files, plain or compressed by gzip, in lines or completely.

A compressed file is one slice, because it cannot be read from the middle.
"""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from tidemark_audit.sources.source import SourceError

GZIP_MAGIC = b"\x1f\x8b"
TO_ITS_END = 2**62
READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TextFile:
    path: Path
    is_packed: bool = False

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Open the file.

        Raises SourceError, also for errors while it is read.
        """
        try:
            with self._open() as file:
                yield file
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(
                str(self.path),
                expected="a completely readable file",
                found=f"{type(error).__name__}: {error}",
                to_do="check that the file is complete and is not changed during the audit",
            ) from error

    def _open(self) -> BinaryIO:
        return cast(BinaryIO, gzip.open(self.path)) if self.is_packed else self.path.open("rb")

    def window_parts(self, most_bytes: int) -> list[tuple[int, int]]:
        """Return ranges of bytes; a line belongs to the range in which it begins."""
        if self.is_packed:
            return [(0, TO_ITS_END)]
        size = self.path.stat().st_size
        return [(begin, min(begin + most_bytes, size)) for begin in range(0, size, most_bytes)]

    def lines(self, begin: int = 0, end: int = TO_ITS_END) -> Iterator[tuple[int, bytes]]:
        """Yield (position, line) of the lines that begin in [begin, end)."""
        with self.opened() as file:
            if begin:  # the line that began before us belongs to who is before us
                file.seek(begin - 1)
                file.readline()
            offset = file.tell()
            while offset < end and (lines := file.readlines(READ_BYTES)):
                for line in lines:
                    if offset < end:
                        yield offset, line
                    offset += len(line)

    def tail(self, most_bytes: int) -> bytes:
        with self.opened() as file:
            if not self.is_packed:
                file.seek(max(0, self.path.stat().st_size - most_bytes))
                return file.read()
            last = b""
            while window_part := file.read(READ_BYTES):
                last = (last + window_part)[-most_bytes:]
            return last
