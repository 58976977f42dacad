"""One machine's volume, and the `Disk` of each process that has it mounted.

A volume can be slow, full, failing, or lose a write-back (a failed sync that later reports clean).
Each call is a point at which the process may be killed or the power cut: `crash_in` counts down
calls, also those in the middle of one worker's job.
"""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Protocol

from tidemark_broker.log.disk import Buffer, DiskFile, DiskSpace, HeldLock

from tests.simulation.engine.disk_image import DirectoryNode, DiskImage, FileNode, missing
from tests.simulation.engine.loop import ProcessDied

VOLUME_BYTES = 320 * 1024  # small: the soft limit, a twentieth of it, is met before a full disk


class Mounter(Protocol):
    """The process on whose behalf a call is made."""

    is_alive: bool
    process_id: int

    def spend(self, microseconds: int) -> None:
        """The calling thread is stuck for so long."""
        ...

    def charge_call(self, kind: str) -> None:
        """It asked for that, which takes what it takes."""
        ...


class Volume:
    def __init__(
        self, chance: Random, now_us: Callable[[], int], wall_us: Callable[[], int]
    ) -> None:
        self.image = DiskImage()
        self.holders: dict[FileNode, Mounter] = {}  # of locks
        self.space_bytes: int | None = None  # left; None: no limit
        self.slow_until_us = 0
        self.slow_call_us = 0  # the most that one call takes while slow
        self.hangs_until_us = 0  # for workers: what they ask from now on comes back then
        self.io_failure: dict[str, int] = {}  # read, write, sync: how many of the next calls
        self.syncs_lost = 0
        self._loses_write_back = 0
        self._losing: set[FileNode] | None = None  # None: of whatever file
        self.is_unreliable = False  # bits flipped under a running broker: judges ask less of it
        self._crash_countdown = 0
        self._crash: Callable[[], None] | None = None
        self._cuts_writes = False
        self._awaited: tuple[str, int, Callable[[], None]] | None = None
        self._chance = chance
        self._now_us = now_us
        self.wall_us = wall_us

    @property
    def is_slow(self) -> bool:
        return self.slow_until_us > self._now_us()

    def crash_in(self, calls: int, crash: Callable[[], None], *, cuts_writes: bool = False) -> None:
        """`crash` is called in the middle of the so-manieth call from now; that call has not
        happened, and raises ProcessDied if its process is dead then. `cuts_writes`: a write has
        happened in part, as SIGKILL leaves a large one."""
        self._crash_countdown, self._crash = calls, crash
        self._cuts_writes = cuts_writes

    def crash_at(self, suffix: str, calls: int, crash: Callable[[], None]) -> None:
        """`crash_in`, from the call on that next gives a file a name with that end."""
        self._awaited = suffix, calls, crash

    def record_named(self, path: Path) -> None:
        if self._awaited is not None and path.name.endswith(self._awaited[0]):
            _, calls, crash = self._awaited
            self._awaited = None
            self.crash_in(calls, crash)

    def part_of_write(self, size_bytes: int) -> int:
        """How much of the write, in which its process was killed, had happened. Only once."""
        if not self._cuts_writes or self._crash is not None:
            return 0
        self._cuts_writes = False
        return self._chance.randint(0, size_bytes)

    def forget_crash(self) -> None:
        self._crash = self._awaited = None

    def lose_write_backs(self, count: int, of: Callable[[str], bool] | None = None) -> None:
        """So many of the next syncs fail (`of`: of files that are there now, by path), and what
        they should have written counts as clean."""
        self._loses_write_back = count
        self._losing = None if of is None else {node for path, node in self.files() if of(path)}

    def lose_pages(self, wanted: Callable[[str], bool]) -> int:
        """The kernel's own write-back of those files fails, and memory pressure takes the pages:
        how many files lost something. The next sync of each hears of it."""
        return sum(self._lose_pages_of(node) for path, node in self.files() if wanted(path))

    @staticmethod
    def _lose_pages_of(node: FileNode) -> bool:
        node.lose_write_back()
        node.has_untold_error = node.drop_lost_pages()
        return node.has_untold_error

    def drop_lost_pages(self) -> int:
        """What failed syncs left in memory only goes: in how many files."""
        return sum(node.drop_lost_pages() for _, node in self.files())

    def files(self) -> list[tuple[str, FileNode]]:
        return [(path, node) for path, node in self.image.nodes() if isinstance(node, FileNode)]

    def lose_power(self) -> dict[str, str]:
        self.holders.clear()
        self.forget_crash()
        self.io_failure.clear()
        return self.image.lose_power(self._chance)

    def release_locks(self, holder: Mounter) -> None:
        for node in [node for node, held_by in self.holders.items() if held_by is holder]:
            del self.holders[node]

    def mend_sectors(self) -> None:
        for _, node in self.files():
            node.bad_positions.clear()

    def flip_bit(self, wanted: Callable[[str], bool]) -> str:
        """In a file whose path is wanted; "" if there is none with data."""
        files = [(path, node) for path, node in self.files() if node.data and wanted(path)]
        if not files:
            return ""
        path, node = self._chance.choice(files)
        position = self._chance.randrange(len(node.data))
        node.data[position] ^= 1 << self._chance.randrange(8)
        node.flipped_positions.add(position)
        return f"{path}@{position}"

    # ---- for SimulatedDisk

    def enter(self, kind: str, mounter: Mounter) -> None:
        """Every system call begins here. Raises ProcessDied, OSError."""
        if self._crash is not None:
            self._crash_countdown -= 1
            if self._crash_countdown <= 0:
                crash, self._crash = self._crash, None
                crash()
        if not mounter.is_alive:
            raise ProcessDied
        mounter.charge_call(kind)
        if self.slow_call_us and self.is_slow:
            mounter.spend(self._chance.randrange(self.slow_call_us))
        if self.io_failure and self.io_failure.get(kind, 0) > 0:
            self.io_failure[kind] -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def take_space(self, wanted_bytes: int) -> int:
        """How much of a growth fits. Raises OSError when nothing does."""
        if self.space_bytes is None or wanted_bytes <= 0:
            return wanted_bytes
        granted = min(wanted_bytes, self.space_bytes)
        if granted == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.space_bytes -= granted
        return granted

    def give_space(self, freed_bytes: int) -> None:
        if self.space_bytes is not None:
            self.space_bytes += freed_bytes

    def sync(self, node: FileNode) -> None:
        is_losing = self._loses_write_back > 0 and (self._losing is None or node in self._losing)
        if is_losing and node.changes:
            self._loses_write_back -= 1
            self.syncs_lost += 1
            node.lose_write_back()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if node.has_untold_error:
            node.has_untold_error = False
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        node.sync()


class SimulatedFile:
    def __init__(self, volume: Volume, mounter: Mounter, node: FileNode) -> None:
        self._volume = volume
        self._mounter = mounter
        self.node = node

    @property
    def is_unreliable(self) -> bool:
        return self._volume.is_unreliable

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        volume, node = self._volume, self.node
        data = b"".join(buffers)
        try:
            volume.enter("write", self._mounter)
        except ProcessDied:
            part = volume.part_of_write(len(data))
            if part:
                node.write(position, data[:part])
            raise
        if volume.space_bytes is not None:
            growth = position + len(data) - len(node.data)
            if growth > 0:
                data = data[: len(data) - growth + volume.take_space(growth)]
        node.write(position, data)
        return len(data)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        self._volume.enter("read", self._mounter)
        if self.node.bad_positions and self.node.is_bad(position, size_bytes):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return bytes(self.node.data[position : position + size_bytes])

    def size_bytes(self) -> int:
        self._volume.enter("stat", self._mounter)
        return len(self.node.data)

    def truncate(self, size_bytes: int) -> None:
        self._volume.enter("write", self._mounter)
        self._volume.give_space(len(self.node.data) - size_bytes)
        self.node.truncate(size_bytes)

    def sync(self) -> None:
        self._volume.enter("sync", self._mounter)
        self._volume.sync(self.node)


class SimulatedLock:
    def __init__(self, volume: Volume, node: FileNode) -> None:
        self._volume = volume
        self._node: FileNode | None = node

    def release(self) -> None:
        if self._node is not None:
            self._volume.holders.pop(self._node, None)
            self._node = None


class SimulatedDisk:
    """`Disk` for one process."""

    def __init__(self, volume: Volume, mounter: Mounter) -> None:
        self._volume = volume
        self._mounter = mounter

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        self._enter("open")
        return SimulatedFile(self._volume, self._mounter, self._opened(path, create))

    def _opened(self, path: Path, create: bool) -> FileNode:
        if create:
            directory = self._volume.image.directory(path.parent)
            if path.name not in directory.entries:
                directory.change({path.name: FileNode(changed_at_us=self._volume.wall_us())})
                self._volume.record_named(path)
        return self._volume.image.file(path)

    def read(self, path: Path) -> bytes:
        self._enter("read")
        return bytes(self._volume.image.file(path).data)

    def write_atomically(self, path: Path, data: bytes, *, durable: bool) -> None:
        temporary = path.with_name(path.name + ".tmp")
        try:
            self._enter("open")
            file = SimulatedFile(self._volume, self._mounter, self._opened(temporary, True))
            file.truncate(0)
            written = 0
            while written < len(data):
                written += file.write_at(written, [data[written:]])
            if durable:
                file.sync()
            self.rename(temporary, path)
        except OSError:
            self.remove(temporary)
            raise
        if durable:
            self.sync_directory(path.parent)

    def sync_file(self, path: Path) -> None:
        self._enter("sync")
        self._volume.sync(self._volume.image.file(path))

    def sync_directory(self, path: Path) -> None:
        self._enter("sync")
        self._volume.image.directory(path).sync()

    def sync_all(self, files: Sequence[Path], directories: Sequence[Path]) -> None:
        for path in files:
            self.sync_file(path)
        for path in directories:
            self.sync_directory(path)

    def list_names(self, path: Path) -> list[str]:
        self._enter("read")
        return sorted(self._volume.image.directory(path).entries)

    def exists(self, path: Path) -> bool:
        self._enter("stat")
        return self._volume.image.find(path) is not None

    def is_directory(self, path: Path) -> bool:
        self._enter("stat")
        return isinstance(self._volume.image.find(path), DirectoryNode)

    def make_directory(self, path: Path) -> None:
        self._enter("write")
        parent = self._volume.image.directory(path.parent)
        if path.name in parent.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        parent.change({path.name: DirectoryNode(changed_at_us=self._volume.wall_us())})

    def rename(self, old: Path, new: Path) -> None:
        self._enter("write")
        assert old.parent == new.parent, "only within one directory"
        directory = self._volume.image.directory(old.parent)
        node = directory.entries.get(old.name)
        if node is None:
            raise missing(old)
        node.changed_at_us = self._volume.wall_us()
        directory.change({old.name: None, new.name: node})
        self._volume.record_named(new)

    def remove(self, path: Path) -> None:
        self._enter("write")
        directory = self._volume.image.directory(path.parent)
        node = directory.entries.get(path.name)
        if isinstance(node, FileNode):
            self._volume.give_space(len(node.data))
            directory.change({path.name: None})

    def remove_tree(self, path: Path) -> None:
        self._enter("write")
        self._volume.image.directory(path)
        self._volume.image.directory(path.parent).change({path.name: None})

    def changed_at_s(self, path: Path) -> float:
        self._enter("stat")
        node = self._volume.image.find(path)
        if node is None:
            raise missing(path)
        return node.changed_at_us / 1e6

    def lock(self, path: Path) -> HeldLock:
        self._enter("open")
        node = self._opened(path, True)
        holder = self._volume.holders.get(node)
        if holder is not None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(path))
        self._volume.holders[node] = self._mounter
        node.truncate(0)
        node.write(0, str(self._mounter.process_id).encode())
        return SimulatedLock(self._volume, node)

    def space(self, path: Path) -> DiskSpace:
        self._enter("read")
        left = self._volume.space_bytes
        return DiskSpace(VOLUME_BYTES if left is None else left, VOLUME_BYTES)

    def network_filesystem(self, path: Path) -> str | None:
        return None

    def _enter(self, kind: str) -> None:
        self._volume.enter(kind, self._mounter)
