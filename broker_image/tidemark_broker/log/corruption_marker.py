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

from tidemark_broker.log.checkpoint_formats import DAMAGE_MARK
from tidemark_broker.log.disk import Disk
from tidemark_broker.log.leader_epoch_cache import LeaderEpochs
from tidemark_broker.log.recovery import LoadedSegments, is_all_sound


@dataclass(frozen=True, slots=True)
class KnownDamage:
    offset: Offset  # a batch that holds it, or one before it, is corrupt
    reason: str
    is_reported: bool  # the replica was reported failed: it may be in no set any more
    is_unreadable: bool = False  # no more than that: the disk may read it again


class DamageMark:
    """The mark of one log. Methods raise OSError."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self.disk = disk  # to write it on: it is small, and needed on a full volume too
        self._directory = directory
        self.damage = self._read()

    @property
    def _path(self) -> Path:
        return self._directory / DAMAGE_MARK

    def _read(self) -> KnownDamage | None:
        try:
            return decode_damage(self.disk.read(self._path))
        except FileNotFoundError:
            return None

    # guard: damage-is-marked-on-disk (S9)
    def set(self, damage: KnownDamage) -> None:
        """Set the mark; durable before it returns."""
        if damage != self.damage:
            self.disk.write_atomically(self._path, encode_damage(damage), durable=True)
            self.damage = damage

    # guard: readable-again-is-valid (S14)
    def take_off_if_readable(self, loaded: LoadedSegments, epochs: LeaderEpochs) -> None:
        """Remove the mark at a start if a batch that was unreadable can be read now.

        All of the log is read, and if it is valid the replica continues as if that read had never
        failed. For what recovery truncated it counts as an unclean shutdown, like any other.
        """
        known = self.damage
        if known is not None and known.is_unreadable and is_all_sound(loaded.segments, epochs):
            self.take_off()

    def take_off(self) -> None:
        if self.damage is not None:
            self.disk.remove(self._path)
            self.disk.sync_directory(self._directory)
            self.damage = None


def encode_damage(damage: KnownDamage) -> bytes:
    content = {
        "version": 0,
        "offset": damage.offset,
        "reason": damage.reason,
        "isReported": damage.is_reported,
        "isUnreadable": damage.is_unreadable,
    }
    return json.dumps(content).encode()


def decode_damage(data: bytes) -> KnownDamage:
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
                return KnownDamage(Offset(offset), reason, is_reported, is_unreadable)
    except ValueError:
        pass
    return KnownDamage(Offset(0), f"an unreadable mark of damage: {data[:64]!r}", True)
