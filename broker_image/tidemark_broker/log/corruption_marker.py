"""Mark in a log's directory that a corrupt batch was found in it, so that a restart knows.

A start verifies only what lies past the recovery point, and nothing after a clean shutdown, so it
would take the log for complete and the replica back into the ISR (S9). The mark is in the log's
directory: it is removed with it, and a log that is created again has none. `replication` decides
when it is set and removed.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from tidemark_protocol.ids import Offset

from tidemark_broker.log.checkpoint_formats import CORRUPTION_MARKER
from tidemark_broker.log.disk import Disk
from tidemark_broker.log.leader_epoch_cache import LeaderEpochs
from tidemark_broker.log.recovery import LoadedSegments, is_all_valid


@dataclass(frozen=True, slots=True)
class KnownCorruption:
    offset: Offset  # a batch that holds it, or one before it, is corrupt
    reason: str
    is_reported: bool  # the replica was reported failed: it may be in no set any more
    is_unreadable: bool = False  # no more than that: the disk may read it again


class CorruptionMarker:
    """The mark of one log. Methods raise OSError."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk  # to write it on: it is small, and needed on a full volume too
        self._directory = directory
        self.corruption = self._read()

    @property
    def _path(self) -> Path:
        return self._directory / CORRUPTION_MARKER

    def _read(self) -> KnownCorruption | None:
        try:
            return decode_corruption(self._disk.read(self._path))
        except FileNotFoundError:
            return None

    # guard: damage-is-marked-on-disk (S9)
    def set(self, corruption: KnownCorruption) -> None:
        """Set the mark; durable before it returns."""
        if corruption != self.corruption:
            self._disk.write_atomically(self._path, encode_corruption(corruption), durable=True)
            self.corruption = corruption

    # guard: readable-again-is-valid (S14)
    def remove_if_readable(self, loaded: LoadedSegments, epochs: LeaderEpochs) -> None:
        """Remove the mark at a start if a batch that was unreadable can be read now.

        All of the log is read, and if it is valid the replica continues as if that read had never
        failed. For what recovery truncated it counts as an unclean shutdown, like any other.
        """
        known = self.corruption
        if known is not None and known.is_unreadable and is_all_valid(loaded.segments, epochs):
            self.remove()

    def remove(self) -> None:
        if self.corruption is not None:
            self._disk.remove(self._path)
            self._disk.sync_directory(self._directory)
            self.corruption = None


def encode_corruption(corruption: KnownCorruption) -> bytes:
    content = {
        "version": 0,
        "offset": corruption.offset,
        "reason": corruption.reason,
        "isReported": corruption.is_reported,
        "isUnreadable": corruption.is_unreadable,
    }
    return json.dumps(content).encode()


def decode_corruption(data: bytes) -> KnownCorruption:
    """Decode a mark; one that cannot be decoded puts all of the log in doubt."""
    try:
        content = json.loads(data)
        match content:
            case {
                "version": 0,
                "offset": int(offset),
                "reason": str(reason),
                "isReported": bool(is_reported),
            } if offset >= 0:
                is_unreadable = content.get("isUnreadable") is True
                return KnownCorruption(Offset(offset), reason, is_reported, is_unreadable)
    except ValueError:
        pass
    return KnownCorruption(Offset(0), f"unreadable corruption marker: {data[:64]!r}", True)
