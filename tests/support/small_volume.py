"""A volume of so many bytes, on which everything has lain for long: what goes makes room."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from tidemark_broker.log.disk import Buffer, DiskFile, DiskSpace

from tests.support.faulty_disk import FaultyDisk, FaultyFile


class SmallVolume(FaultyDisk):
    def __init__(self, path: Path, total_bytes: int) -> None:
        super().__init__()
        self.path = path
        self.total_bytes = total_bytes

    @property
    def free_bytes(self) -> int:
        used = 0
        for directory, _, names in os.walk(self.path):
            for name in names:
                try:
                    used += Path(directory, name).stat().st_size
                except FileNotFoundError:
                    continue  # renamed meanwhile
        return max(0, self.total_bytes - used)

    def take_space(self, wanted: int) -> int:
        granted = min(wanted, self.free_bytes)
        if granted <= 0 < wanted:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return granted

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        self.check("open", path)
        return GrowingFile(self, path, super(FaultyDisk, self).open(path, create=create))

    def space(self, path: Path) -> DiskSpace:
        return DiskSpace(self.free_bytes, self.total_bytes)

    def changed_at_s(self, path: Path) -> float:
        return -3600.0


class GrowingFile(FaultyFile):
    """What is written in place takes no space."""

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        self._disk.check("write_at", self._path)
        data = b"".join(buffers)
        growth = max(0, position + len(data) - self._file.size_bytes())
        if growth:
            data = data[: len(data) - growth + self._disk.take_space(growth)]
        return self._file.write_at(position, [data])
