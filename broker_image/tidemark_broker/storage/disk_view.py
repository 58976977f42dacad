"""A disk as some of its users see it: all calls go through, but for those that a view overrides."""

from collections.abc import Sequence
from pathlib import Path

from tidemark_broker.storage.disk import Disk, DiskFile, DiskSpace, HeldLock


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
