"""A filesystem in memory that knows which of it a power cut would leave.

Every file and directory is as processes see it (the page cache), with its changes since the last
sync beside it. After a power loss unsynced data may be there, be gone, be torn at any byte, or
have holes; a directory loses a tail of its changes, as a journal does, each directory on its own.
POSIX promises no more, and production code must not count on more (S11).
"""

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

DATA_OUTCOMES = ("kept", "lost", "torn", "holes")


@dataclass(slots=True)
class DataChange:
    """A write of `data` at a position, or (None) a cut to it, and what is needed to undo it."""

    position: int
    data: bytes | None
    replaced: bytes
    old_size_bytes: int
    is_durable: bool = False  # synced, while an earlier change was lost
    is_lost: bool = False  # a failed sync marked it clean: it never gets to the platter


@dataclass(slots=True, eq=False)
class FileNode:
    data: bytearray = field(default_factory=bytearray)
    changes: list[DataChange] = field(default_factory=list)
    changed_at_us: int = 0
    flipped_positions: set[int] = field(default_factory=set)  # of bytes, for judges
    bad_positions: set[int] = field(default_factory=set)  # of bytes that cannot be read: EIO
    has_untold_error: bool = False  # of the kernel's own write-back; the next sync hears of it

    def is_bad(self, position: int, size_bytes: int) -> bool:
        return any(position <= bad < position + size_bytes for bad in self.bad_positions)

    def write(self, position: int, data: bytes) -> None:
        # What is written anew a drive puts elsewhere.
        self.bad_positions -= {
            bad for bad in self.bad_positions if position <= bad < position + len(data)
        }
        replaced = bytes(self.data[position : position + len(data)])
        self.changes.append(DataChange(position, data, replaced, len(self.data)))
        self._put(position, data)

    def truncate(self, size_bytes: int) -> None:
        old_size = len(self.data)
        if size_bytes < old_size:
            self.bad_positions = {bad for bad in self.bad_positions if bad < size_bytes}
            replaced = bytes(self.data[size_bytes:])
            self.changes.append(DataChange(size_bytes, None, replaced, old_size))
            del self.data[size_bytes:]
        elif size_bytes > old_size:
            self.write(old_size, bytes(size_bytes - old_size))

    def sync(self) -> None:
        if any(change.is_lost for change in self.changes):
            for change in self.changes:
                change.is_durable = not change.is_lost
        else:
            self.changes.clear()

    def lose_write_back(self) -> None:
        """A sync failed: what it should have written counts as clean, and stays in memory only."""
        for change in self.changes:
            change.is_lost = not change.is_durable

    def drop_lost_pages(self) -> bool:
        """Memory pressure takes what a failed write-back left in memory only: processes see what is
        on the platter. False if there was nothing of the kind."""
        if not any(change.is_lost for change in self.changes):
            return False
        changes, self.changes = self.changes, []
        for change in reversed(changes):
            self._undo(change)
        for change in changes:
            if change.is_durable:
                self._redo(change)
            elif not change.is_lost and change.data is None:
                self.truncate(change.position)
            elif not change.is_lost and change.data is not None:
                self.write(change.position, change.data)
        return True

    def lose_power(self, chance: Random) -> str:
        """What became of the unsynced data; "" if there was none."""
        changes, self.changes = self.changes, []
        if not changes:
            return ""
        for change in reversed(changes):
            self._undo(change)
        outcome = chance.choice(DATA_OUTCOMES)
        unsynced = [c for c in changes if not (c.is_durable or c.is_lost)]
        kept = {"kept": len(unsynced), "lost": 0}.get(outcome, chance.randint(0, len(unsynced)))
        whole = {id(change) for change in unsynced[:kept]}
        torn = unsynced[kept] if outcome == "torn" and kept < len(unsynced) else None
        for change in changes:
            if change.is_durable or id(change) in whole:
                self._redo(change)
            elif change is torn and change.data is not None:
                self._put(change.position, change.data[: chance.randrange(len(change.data))])
            elif outcome == "holes" and not change.is_lost and chance.random() < 0.5:
                self._redo(change)
        return outcome

    def _put(self, position: int, data: bytes) -> None:
        if position > len(self.data):
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(data)] = data

    def _redo(self, change: DataChange) -> None:
        if change.data is None:
            del self.data[change.position :]
        else:
            self._put(change.position, change.data)

    def _undo(self, change: DataChange) -> None:
        if change.data is None:
            self.data.extend(change.replaced)
        else:
            self.data[change.position : change.position + len(change.replaced)] = change.replaced
            del self.data[change.old_size_bytes :]


@dataclass(slots=True, eq=False)
class DirectoryNode:
    entries: "dict[str, Node]" = field(default_factory=dict)
    # Each one the former nodes of the names that it changed.
    changes: "list[dict[str, Node | None]]" = field(default_factory=list)
    changed_at_us: int = 0

    def change(self, names: "dict[str, Node | None]") -> None:
        """In one go, as a rename does. None: the name is gone."""
        self.changes.append({name: self.entries.get(name) for name in names})
        self._set(names)

    def sync(self) -> None:
        self.changes.clear()

    def lose_power(self, chance: Random) -> int:
        """Changes lost."""
        changes, self.changes = self.changes, []
        kept = chance.randint(0, len(changes)) if changes else 0
        for previous in reversed(changes[kept:]):
            self._set(previous)
        return len(changes) - kept

    def _set(self, names: "dict[str, Node | None]") -> None:
        for name, node in names.items():
            if node is None:
                self.entries.pop(name, None)
            else:
                self.entries[name] = node


Node = FileNode | DirectoryNode


class DiskImage:
    def __init__(self) -> None:
        self.root = DirectoryNode()

    def find(self, path: Path) -> Node | None:
        node: Node | None = self.root
        for part in path.parts[1:]:
            if not isinstance(node, DirectoryNode):
                return None
            node = node.entries.get(part)
        return node

    def directory(self, path: Path) -> DirectoryNode:
        node = self.find(path)
        if node is None:
            raise missing(path)
        if not isinstance(node, DirectoryNode):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return node

    def file(self, path: Path) -> FileNode:
        node = self.find(path)
        if node is None:
            raise missing(path)
        if not isinstance(node, FileNode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return node

    def nodes(self) -> "Iterator[tuple[str, Node]]":
        """All with their paths, in one order."""
        waiting: list[tuple[str, Node]] = [("", self.root)]
        while waiting:
            path, node = waiting.pop()
            yield path, node
            if isinstance(node, DirectoryNode):
                waiting.extend(
                    (f"{path}/{name}", node.entries[name]) for name in sorted(node.entries)
                )

    def lose_power(self, chance: Random) -> dict[str, str]:
        """What each path lost of its unsynced changes."""
        found: dict[str, str] = {}
        met: set[Node] = set()
        while fresh := [(path, node) for path, node in self.nodes() if node not in met]:
            for path, node in fresh:
                lost = node.lose_power(chance)
                if lost:
                    found[path or "/"] = lost if isinstance(lost, str) else f"{lost} entries"
            met.update(node for _, node in fresh)
            # What was removed and is there again has lost what was not synced of it, too. From a
            # copy of the stream: it shifts nothing of what is drawn after it.
            aside = Random()
            aside.setstate(chance.getstate())
            chance = aside
        return found


def missing(path: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
