"""Define all I/O of logs: a few calls on files and directories, each of which raises OSError.

Tests replace the disk by one that fills up, fails or forgets. Nothing here interprets an error,
retries, or syncs unasked. Files are written at explicit positions, never O_APPEND: bytes that a
failed write left are then overwritten by the next write, even if they could not be truncated (S10).

`DiskView` passes all calls through, except those that a subclass overrides.
"""

import contextlib
import ctypes
import fcntl
import os
import shutil
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview

MAX_BUFFERS_PER_WRITE = 1024  # IOV_MAX on Linux
SYNCS_AT_A_TIME = 8
MAX_SMALL_FILE_BYTES = 64 * 1024 * 1024  # checkpoints and the like: a bound, not a size

# statfs(2) f_type of filesystems that are not one kernel's own (S13); virtiofs answers as FUSE.
NETWORK_FILESYSTEMS = {
    0x6969: "NFS",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB2",
    0x517B: "SMB",
    0x65735546: "FUSE",
    0x01021997: "9p",
    0x00C36400: "Ceph",
    0x5346414F: "AFS",
    0x73757245: "Coda",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x01161970: "GFS2",
    0x7461636F: "OCFS2",
}


class DiskSpace(NamedTuple):
    free_bytes: int  # to us: what the filesystem keeps for root does not count
    total_bytes: int


class DiskFile(Protocol):
    """An open file, closed with its last reference: a sync in another thread may still run."""

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write at most MAX_BUFFERS_PER_WRITE buffers; return the bytes written, maybe fewer."""

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Return `size_bytes` from `position`, fewer only at the end of the file."""

    def size_bytes(self) -> int: ...
    def truncate(self, size_bytes: int) -> None: ...
    def sync(self) -> None:
        """Sync the data and the length needed to read it (fdatasync)."""


class HeldLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    def open(self, path: Path, *, create: bool = False) -> DiskFile: ...
    def read(self, path: Path) -> bytes:
        """Return a small file completely.

        Raises FileNotFoundError if it does not exist.
        """

    def write_atomically(self, path: Path, data: bytes, *, durable: bool) -> None:
        """Write a temporary file and rename it; `durable` syncs file and directory entry."""

    def sync_file(self, path: Path) -> None: ...
    def sync_directory(self, path: Path) -> None: ...
    def sync_all(self, files: Sequence[Path], directories: Sequence[Path]) -> None:
        """Sync files, then directories; many at once take less time than one after the other."""

    def list_names(self, path: Path) -> list[str]: ...
    def exists(self, path: Path) -> bool: ...
    def is_directory(self, path: Path) -> bool: ...
    def make_directory(self, path: Path) -> None: ...
    def rename(self, old: Path, new: Path) -> None: ...
    def remove(self, path: Path) -> None:
        """Remove a file; one that does not exist is no error."""

    def remove_tree(self, path: Path) -> None: ...
    def changed_at_s(self, path: Path) -> float:
        """Return the wall clock time when the entry was last changed or renamed."""

    def lock(self, path: Path) -> HeldLock:
        """Lock a file exclusively until this process ends, and write the process id into it.

        Raises BlockingIOError immediately if another process holds it.
        """

    def space(self, path: Path) -> DiskSpace: ...
    def network_filesystem(self, path: Path) -> str | None:
        """Return the name of the filesystem if several kernels may share it, else None."""


class SyncCount:
    """A count of syncs.

    Workers sync concurrently; the lock's cost is small beside a sync.
    """

    def __init__(self) -> None:
        self.total = 0
        self._lock = threading.Lock()

    def note(self) -> None:
        with self._lock:
            self.total += 1


class OsFile:
    def __init__(self, path: Path, *, create: bool, sync_count: SyncCount) -> None:
        self._sync_count = sync_count
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._descriptor = os.open(path, flags, 0o644)
        # By reference count, not by a close(): a worker may be in fdatasync on this descriptor,
        # and a closed number could by then name another file.
        weakref.finalize(self, os.close, self._descriptor)

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        return os.pwritev(self._descriptor, buffers, position)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        data = os.pread(self._descriptor, size_bytes, position)
        # A kernel stops short before a sector that it cannot read, as it does at the file's end:
        # which of them it is, the next call says.
        while len(data) < size_bytes and (
            more := os.pread(self._descriptor, size_bytes - len(data), position + len(data))
        ):
            data += more
        return data

    def size_bytes(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._descriptor, size_bytes)

    def sync(self) -> None:
        self._sync_count.note()
        os.fdatasync(self._descriptor)


class OsLock:
    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise
        # The second process names it in its error. A full disk must not prevent our start.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class OsDisk:
    def __init__(self) -> None:
        self.sync_count = SyncCount()

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        return OsFile(path, create=create, sync_count=self.sync_count)

    def read(self, path: Path) -> bytes:
        with path.open("rb") as file:
            return file.read(MAX_SMALL_FILE_BYTES)

    def write_atomically(self, path: Path, data: bytes, *, durable: bool) -> None:
        temporary = path.with_name(path.name + ".tmp")
        try:
            with temporary.open("wb", buffering=0) as file:
                written = 0
                while written < len(data):
                    written += file.write(memoryview(data)[written:])
                if durable:
                    self.sync_count.note()
                    os.fsync(file.fileno())
            temporary.rename(path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        if durable:
            self.sync_directory(path.parent)

    def sync_file(self, path: Path) -> None:
        self._sync(path, os.O_RDONLY)

    def sync_directory(self, path: Path) -> None:
        self._sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def sync_all(self, files: Sequence[Path], directories: Sequence[Path]) -> None:
        for sync, paths in ((self.sync_file, files), (self.sync_directory, directories)):
            if len(paths) <= 2:
                for path in paths:
                    sync(path)
                continue
            # A journal takes those that ask at the same time into one commit.
            with ThreadPoolExecutor(SYNCS_AT_A_TIME, "sync") as workers:
                for _ in workers.map(sync, paths):
                    pass

    def _sync(self, path: Path, flags: int) -> None:
        descriptor = os.open(path, flags | os.O_CLOEXEC)
        self.sync_count.note()
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def list_names(self, path: Path) -> list[str]:
        return sorted(entry.name for entry in path.iterdir())

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def make_directory(self, path: Path) -> None:
        path.mkdir()

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path)

    def changed_at_s(self, path: Path) -> float:
        return path.stat().st_ctime

    def lock(self, path: Path) -> HeldLock:
        return OsLock(path)

    def space(self, path: Path) -> DiskSpace:
        found = os.statvfs(path)
        return DiskSpace(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def network_filesystem(self, path: Path) -> str | None:
        # Python has no statfs; f_type is the first word of struct statfs on every Linux.
        libc = ctypes.CDLL(None, use_errno=True)
        response = (ctypes.c_ulong * 64)()
        if libc.statfs(os.fsencode(path), ctypes.byref(response)) != 0:
            raise OSError(ctypes.get_errno(), "statfs", str(path))
        return NETWORK_FILESYSTEMS.get(response[0] & 0xFFFFFFFF)


class DiskView:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        return self._disk.open(path, create=create)

    def read(self, path: Path) -> bytes:
        return self._disk.read(path)

    def write_atomically(self, path: Path, data: bytes, *, durable: bool) -> None:
        self._disk.write_atomically(path, data, durable=durable)

    def sync_file(self, path: Path) -> None:
        self._disk.sync_file(path)

    def sync_directory(self, path: Path) -> None:
        self._disk.sync_directory(path)

    def sync_all(self, files: Sequence[Path], directories: Sequence[Path]) -> None:
        self._disk.sync_all(files, directories)

    def list_names(self, path: Path) -> list[str]:
        return self._disk.list_names(path)

    def exists(self, path: Path) -> bool:
        return self._disk.exists(path)

    def is_directory(self, path: Path) -> bool:
        return self._disk.is_directory(path)

    def make_directory(self, path: Path) -> None:
        self._disk.make_directory(path)

    def rename(self, old: Path, new: Path) -> None:
        self._disk.rename(old, new)

    def remove(self, path: Path) -> None:
        self._disk.remove(path)

    def remove_tree(self, path: Path) -> None:
        self._disk.remove_tree(path)

    def changed_at_s(self, path: Path) -> float:
        return self._disk.changed_at_s(path)

    def lock(self, path: Path) -> HeldLock:
        return self._disk.lock(path)

    def space(self, path: Path) -> DiskSpace:
        return self._disk.space(path)

    def network_filesystem(self, path: Path) -> str | None:
        return self._disk.network_filesystem(path)
