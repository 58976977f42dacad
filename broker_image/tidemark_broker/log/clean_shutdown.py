"""Keep the records on a volume of how its last broker process ended (S1, S7, S8, S14).

There are two small files: the clean shutdown file, which a clean shutdown leaves, and the boot
record, which shows after a kill that it was only a kill. Opening the volume removes both, durably,
before a log is read, so that an interrupted start leaves neither. A new boot record is written only
when the controller's decision on the start is durable. The records found on the volume are reported
once, by the first registration, and only if opening the logs found nothing that a clean shutdown or
a kill could not have left.

A boot record that was removed stays under another name: it still shows which broker epoch this disk
served, and so that all that this epoch synced is here. No start, however it ends, makes that
untrue; a lost write does, and so does corruption beyond an incomplete last batch.
"""

import json
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from tidemark_protocol.controller_messages import BootRecord
from tidemark_protocol.ids import NO_EPOCH, BrokerEpoch

from tidemark_broker.log.checkpoint_formats import (
    CLEAN_STOP,
    MalformedFile,
    decode_clean_stop,
    encode_clean_stop,
)
from tidemark_broker.log.disk import Disk

STORED_BOOT_RECORD = "tidemark-boot-stamp.json"
SPENT_BOOT_RECORD = "tidemark-spent-stamp.json"

_TEXT_FIELDS = ("bootId", "podUid", "claimUid")


class Mount(NamedTuple):
    """The place of a volume: kernel, pod and claim. "" is unknown."""

    boot_id: str
    pod_uid: str
    claim_uid: str


UNKNOWN_MOUNT = Mount("", "", "")


class CleanShutdown:
    """The clean shutdown file and the boot record of a volume.

    Methods raise OSError. The end of a process may be recorded while its boot record is still being
    written by another worker: a lock orders them, and nothing is written after the end.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._clean_stop_epoch = BrokerEpoch(NO_EPOCH)
        self._boot_record: BootRecord | None = None
        self._disk_boot_record: BootRecord | None = None
        self._one_at_a_time = Lock()
        self._is_over = False

    # guard: proofs-removed-before-logs-are-read (S1)
    def take(self) -> None:
        """Read both files and remove them durably."""
        self._clean_stop_epoch = self._read_clean_stop()
        stamp = self._read_boot_record(STORED_BOOT_RECORD)
        # A life that stopped cleanly was not killed: what is missing now went after its last fsync.
        self._boot_record = None if self.has_clean_stop else stamp
        self._disk_boot_record = stamp or self._read_boot_record(SPENT_BOOT_RECORD)
        self._disk.remove(self._path / CLEAN_STOP)
        if stamp is None:
            self._disk.remove(self._path / STORED_BOOT_RECORD)
        else:
            self._disk.rename(self._path / STORED_BOOT_RECORD, self._path / SPENT_BOOT_RECORD)
        self._disk.sync_directory(self._path)

    # guard: damage-voids-proofs (S8)
    def weigh(self, only_a_torn_tail: bool) -> None:
        """Invalidate the records if recovery is about to remove more than a kill can leave.

        A kill leaves at most one incomplete batch, at the very end of a log (S8); it was not
        synced, and so nothing synced is removed. For other corruption that is unknown: a lost
        kernel leaves holes, a disk loses what it had. A clean shutdown leaves nothing to truncate.
        Durable, and called before the truncation: after it the log looks complete to the next
        start.
        """
        if only_a_torn_tail and not self.has_clean_stop:
            return
        self._clean_stop_epoch = BrokerEpoch(NO_EPOCH)
        if self._disk_boot_record is not None:
            self._remove_stamps()

    @property
    def has_clean_stop(self) -> bool:
        """Return whether the logs were closed completely, so that their ends need no recovery.

        No sync of that process failed either. A boot record does not show that: it stays where a
        kill came before its removal, or where the controller's record was the first of the two
        (S8).
        """
        return self._clean_stop_epoch != NO_EPOCH

    # guard: synced-prefix-of-this-mount (S29)
    def was_served_at(self, mount: Mount) -> bool:
        """Return whether the last registered process had the volume at this mount of this kernel.

        Then files are as processes left them, however many processes came between without
        registering. Unknown once the boot record of this process is written.
        """
        stamp = self._disk_boot_record
        if stamp is None or not mount.boot_id or not mount.pod_uid:
            return False
        return mount == (stamp.boot_id, stamp.pod_uid, stamp.claim_uid)

    @property
    def clean_stop_epoch(self) -> BrokerEpoch:
        """Return the broker epoch that shut down cleanly, or -1."""
        return self._clean_stop_epoch

    @property
    def boot_stamp(self) -> BootRecord | None:
        """Return the boot record of a process that was killed, or None."""
        return self._boot_record

    @property
    def disk_stamp(self) -> BootRecord | None:
        """Return the boot record of the last epoch on this disk, however it ended (S14)."""
        return self._disk_boot_record

    def stamp(self, stamp: BootRecord) -> None:
        """Write the boot record, once the decision on this start is durable at the controller.

        Durable before it returns; the records that were reported are no longer valid.
        """
        with self._one_at_a_time:
            if self._is_over:
                return
            self._clean_stop_epoch = BrokerEpoch(NO_EPOCH)
            self._boot_record = self._disk_boot_record = None
            self._disk.write_atomically(
                self._path / STORED_BOOT_RECORD, encode_boot_record(stamp), durable=True
            )

    # guard: lost-write-removes-stamp (S8)
    def remove_stored_boot_record(self) -> None:
        """Remove the boot records after a lost write.

        No later start may take this process for one that was only killed, or this disk for one that
        has what it synced.
        """
        with self._one_at_a_time:
            self._is_over = True
            self._remove_stamps()

    def _remove_stamps(self) -> None:
        self._boot_record = self._disk_boot_record = None
        for name in (STORED_BOOT_RECORD, SPENT_BOOT_RECORD):
            self._disk.remove(self._path / name)
        self._disk.sync_directory(self._path)

    def give_back(self) -> None:
        """Restore the removed records where they still hold, for a start that changed nothing."""
        with self._one_at_a_time:
            self._is_over = True
            epoch, stamp = self._clean_stop_epoch, self._boot_record
            if stamp is not None:
                path = self._path / STORED_BOOT_RECORD
                self._disk.write_atomically(path, encode_boot_record(stamp), durable=True)
            if epoch != NO_EPOCH:
                path = self._path / CLEAN_STOP
                self._disk.write_atomically(path, encode_clean_stop(epoch), durable=True)

    def _read_clean_stop(self) -> BrokerEpoch:
        try:
            return decode_clean_stop(self._disk.read(self._path / CLEAN_STOP))
        except (FileNotFoundError, MalformedFile):
            return BrokerEpoch(NO_EPOCH)

    def _read_boot_record(self, name: str) -> BootRecord | None:
        try:
            return decode_boot_record(self._disk.read(self._path / name))
        except (FileNotFoundError, MalformedFile):
            return None


def encode_boot_record(stamp: BootRecord) -> bytes:
    content = {
        "version": 0,
        "bootId": stamp.boot_id,
        "podUid": stamp.pod_uid,
        "claimUid": stamp.claim_uid,
        "brokerEpoch": stamp.broker_epoch,
    }
    return json.dumps(content).encode()


def decode_boot_record(data: bytes) -> BootRecord:
    """Decode a boot record.

    Raises MalformedFile.
    """
    try:
        content = json.loads(data)
    except ValueError as error:
        raise MalformedFile(f"expected JSON, found {data[:64]!r}") from error
    if not isinstance(content, dict) or content.get("version") != 0:
        raise MalformedFile(f"expected version 0, found {data[:64]!r}")
    texts = [content.get(name) for name in _TEXT_FIELDS]
    epoch = content.get("brokerEpoch")
    if not all(isinstance(text, str) for text in texts) or type(epoch) is not int:
        raise MalformedFile(f"expected a boot record, found {data[:200]!r}")
    boot_id, pod_uid, claim_uid = (str(text) for text in texts)
    return BootRecord(boot_id, pod_uid, claim_uid, BrokerEpoch(epoch))
