"""A real disk that can be made to fill up, to fail, and to tell what it was asked."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from tidemark_broker.log.disk import Buffer, DiskFile, DiskSpace, OsDisk


class FaultyDisk(OsDisk):
    def __init__(self) -> None:
        super().__init__()
        self.space_bytes: int | None = None  # None: no limit; counts file contents written
        self.io_failure: dict[str, int] = {}  # operation -> errno
        self.bad_sectors: dict[Path, range] = {}  # bytes that cannot be read any more
        self.unreadable_reads = 0
        self.network: str | None = None
        self.done: list[tuple[str, str]] = []  # (operation, name) of syncs, renames, removals

    def check(self, operation: str, path: Path) -> None:
        if operation in self.io_failure:
            number = self.io_failure[operation]
            raise OSError(number, os.strerror(number), str(path))
        self.done.append((operation, path.name))

    def take_space(self, wanted: int) -> int:
        """How much of a write fits; ENOSPC if nothing does."""
        if self.space_bytes is None:
            return wanted
        granted = min(wanted, self.space_bytes)
        if granted == 0 < wanted:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.space_bytes -= granted
        return granted

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        self.check("open", path)
        return FaultyFile(self, path, super().open(path, create=create))

    def write_atomically(self, path: Path, data: bytes, *, durable: bool) -> None:
        self.check("write", path)
        if self.take_space(len(data)) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        super().write_atomically(path, data, durable=durable)

    def sync_file(self, path: Path) -> None:
        self.check("sync", path)
        super().sync_file(path)

    def sync_directory(self, path: Path) -> None:
        self.check("sync_directory", path)
        super().sync_directory(path)

    def rename(self, old: Path, new: Path) -> None:
        self.check("rename", new)
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self.check("remove", path)
        super().remove(path)

    def space(self, path: Path) -> DiskSpace:
        self.check("space", path)
        found = super().space(path)
        return found if self.space_bytes is None else found._replace(free_bytes=self.space_bytes)

    def network_filesystem(self, path: Path) -> str | None:
        return self.network


class FaultyFile:
    def __init__(self, disk: FaultyDisk, path: Path, file: DiskFile) -> None:
        self._disk, self._path, self._file = disk, path, file

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        self._disk.check("write_at", self._path)
        data = b"".join(buffers)
        return self._file.write_at(position, [data[: self._disk.take_space(len(data))]])

    def read_at(self, position: int, size_bytes: int) -> bytes:
        self._disk.check("read_at", self._path)
        bad = self._disk.bad_sectors.get(self._path, range(0))
        if position < bad.stop and bad.start < position + size_bytes:
            self._disk.unreadable_reads += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._file.read_at(position, size_bytes)

    def size_bytes(self) -> int:
        return self._file.size_bytes()

    def truncate(self, size_bytes: int) -> None:
        self._disk.check("truncate", self._path)
        self._file.truncate(size_bytes)

    def sync(self) -> None:
        self._disk.check("sync", self._path)
        self._file.sync()
