"""Reserve space on a volume that records cannot use, so that a full volume can recover (0085).

Retention and a start must first write small files: log starts before segments are deleted (S9),
epochs before a response counts (S16). A file holds the space for them and is emptied when one of
them finds none. From then on the volume is full for everything else, whatever the filesystem
reports, until there is room to fill the file again: retention and the deletion of removed logs make
it. An empty file tells the next process so too. It has no other meaning.
"""

import hashlib
import logging
import threading
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from typing import ParamSpec, TypeVar

from tidemark_broker.log.disk import Disk, DiskSpace, DiskView
from tidemark_broker.log.errors import DISK_FULL_ERRORS
from tidemark_broker.log.segment import write_all

RESERVE = "tidemark-space-reserve"
RESERVE_BYTES = 1024 * 1024  # a checkpoint of 20 000 partitions
RESERVE_SHARE = 80  # of a small volume: a quarter of what produce leaves free (`space_watch`)
ROOM_FACTOR = 2  # free, with the reserve, before it is filled again: else it would come and go
LONGEST_WRITE_SECONDS = 1.0  # on a disk that hangs nothing takes space either

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


def reserve_bytes(space: DiskSpace) -> int:
    return min(RESERVE_BYTES, space.total_bytes // RESERVE_SHARE)


class DiskReserve:
    """The reserve of a volume.

    `checkpoints` is the disk of the writes that may use it, `data` that of all others.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self.checkpoints: Disk = _CheckpointDisk(disk, self)
        self.data: Disk = _DataDisk(disk, self)
        self._path = path / RESERVE
        self._disk = disk
        self._changing = threading.Lock()
        self._is_whole = False  # not looked at yet, or not there
        self._is_reserved = False
        self._writing = threading.Lock()
        self._written = threading.Condition(self._writing)
        self._data_writes = 0  # under way

    @property
    def is_reserved(self) -> bool:
        """Return whether the reserve is in use; records are rejected then, whatever is free."""
        return self._is_reserved

    def look(self) -> None:
        """Read what an earlier process left.

        Raises OSError.
        """
        self._is_reserved = self._held_bytes() == 0

    def keep(self, space: DiskSpace) -> None:
        """Fill the file if there is room for it.

        Called in a worker once a second; `space` was just read. Raises OSError other than a full
        disk.
        """
        with self._changing:
            if not self._is_whole:
                self._is_whole = self._fill(space)
                self._is_reserved = not self._is_whole

    def _held_bytes(self) -> int | None:
        """Return the size of the file, or None if it does not exist yet."""
        if not self._disk.exists(self._path):
            return None
        return self._disk.open(self._path).size_bytes()

    def _fill(self, space: DiskSpace) -> bool:
        wanted, held = reserve_bytes(space), self._held_bytes() or 0
        if held >= wanted:
            return True
        if space.free_bytes + held < ROOM_FACTOR * wanted:
            return False
        try:
            file = self._disk.open(self._path, create=True)
            # Zeros would take no space of a filesystem that compresses them.
            write_all(file, held, hashlib.shake_128(RESERVE.encode()).digest(wanted - held))
            file.sync()
            self._disk.sync_directory(self._path.parent)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRORS:
                raise
            return False
        return True

    def with_space(self, work: Callable[[], T]) -> T:
        """Do a small write; if there is no space, free the reserve and do it again.

        Raises OSError.
        """
        try:
            return work()
        except OSError as error:
            if error.errno not in DISK_FULL_ERRORS or not self._reserve_bytes():
                raise
        return work()

    def _reserve_bytes(self) -> bool:
        """Free the reserve; return False if there was none."""
        with self._changing:
            if not self._held_bytes():
                self._is_whole = False
                return self._is_reserved  # to another small write, at the same time
            with self._writing:  # a write that began before would get some of it
                self._is_reserved = True
                self._written.wait_for(lambda: self._data_writes == 0, LONGEST_WRITE_SECONDS)
            self._is_whole = False
            file = self._disk.open(self._path)
            file.truncate(0)
            file.sync()  # a journal gives blocks back with its commit
            _log.warning("volume full, checkpoints use the disk reserve")
            return True

    def write_data(self, write: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do a write that grows a file of a log.

        Raises OSError while the reserve is in use, also with space on the volume.
        """
        with self._writing:
            if self._is_reserved:
                raise OSError(ENOSPC, "no space on the volume except the reserve for checkpoints")
            self._data_writes += 1
        try:
            return write(*arguments, **named)
        finally:
            with self._writing:
                self._data_writes -= 1
                if self._is_reserved:
                    self._written.notify_all()


class _CheckpointDisk(DiskView):
    def __init__(self, disk: Disk, reserve: DiskReserve) -> None:
        super().__init__(disk)
        self._reserve = reserve

    def write_atomically(self, path: Path, data: bytes, *, durable: bool) -> None:
        self._reserve.with_space(lambda: self._disk.write_atomically(path, data, durable=durable))

    def rename(self, old: Path, new: Path) -> None:
        """Rename; a longer name may need a block of its directory."""
        self._reserve.with_space(lambda: self._disk.rename(old, new))


class _DataDisk(DiskView):
    """The disk of logs while the reserve is in use.

    Truncating, renaming, removing and creating an empty file still work: retention that removes a
    complete log starts it again. Records and compaction use `write_data` by themselves, because an
    open file belongs to the disk.
    """

    def __init__(self, disk: Disk, reserve: DiskReserve) -> None:
        super().__init__(disk)
        self._reserve = reserve

    def write_atomically(self, path: Path, data: bytes, *, durable: bool) -> None:
        self._reserve.write_data(self._disk.write_atomically, path, data, durable=durable)

    def make_directory(self, path: Path) -> None:
        self._reserve.write_data(self._disk.make_directory, path)

    def rename(self, old: Path, new: Path) -> None:
        """Rename, as a segment that is deleted is."""
        self._reserve.with_space(lambda: self._disk.rename(old, new))
