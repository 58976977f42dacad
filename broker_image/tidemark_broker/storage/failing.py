"""What an I/O error means for one log: want of room (disk, descriptors) refuses, any other ends all
writing (S8)."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tidemark_broker.storage.epoch_checkpoint import NO_ROOM_ERRORS
from tidemark_broker.storage.errors import DiskFull, StorageFailed


class LogFailure:
    """`reason`: why the log refuses writes; empty while it takes them. Never taken back."""

    def __init__(self, directory: Path) -> None:
        self.reason = ""
        self._directory = directory

    def ensure_writable(self) -> None:
        """Raises StorageFailed."""
        if self.reason:
            raise StorageFailed(f"{self._directory} takes no more writes: {self.reason}")

    def note(self, reason: str) -> None:
        """The first reason stays."""
        self.reason = self.reason or reason

    def failed_by(self, error: OSError, action: str) -> DiskFull | StorageFailed:
        """To be raised; a full disk leaves the log as it was, and writable."""
        if error.errno in NO_ROOM_ERRORS and not self.reason:
            return DiskFull(f"cannot {action} in {self._directory}: {error}; nothing was written")
        return self.broken_by(error, action)

    def broken_by(self, error: OSError, action: str) -> StorageFailed:
        """To be raised; nothing is written any more, also after a full disk."""
        self.note(f"could not {action}: {error}")
        return StorageFailed(f"cannot {action} in {self._directory}: {error}")

    @contextlib.contextmanager
    def breaking(self, action: str) -> Iterator[None]:
        """What fails in it breaks the log. Raises StorageFailed."""
        try:
            yield
        except OSError as error:
            raise self.broken_by(error, action) from error
