"""What a volume says of how its last life ended, and when it may say so (S1, S7, S8, S14).

Two small files: the stop proof, left by a clean stop, and the boot stamp, which proves after a kill
that it was only a kill. Opening the volume takes both off it, durably, before a log is read: a
start that is cut short proves nothing. A new stamp comes only when the controller's verdict on the
start is durable. What is found on the volume is claimed once, by the first registration, and only
if opening the logs found nothing that a clean stop, or a kill, could not have left.

A stamp that was taken stays under another name, spent: it still says of which life this disk is,
and so that all that this life synced is here. No start, however it ends, makes that untrue; a lost
write does, and so does damage that is more than a torn tail.
"""

import json
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from tidemark_protocol.controller_messages import BootStamp
from tidemark_protocol.ids import NO_EPOCH, BrokerEpoch

from tidemark_broker.log.checkpoint_formats import (
    CLEAN_STOP,
    MalformedFile,
    decode_clean_stop,
    encode_clean_stop,
)
from tidemark_broker.log.disk import Disk

BOOT_STAMP = "tidemark-boot-stamp.json"
SPENT_STAMP = "tidemark-spent-stamp.json"

_TEXT_FIELDS = ("bootId", "podUid", "claimUid")


class Mount(NamedTuple):
    """Where a broker has its volume: on which kernel, for which pod and claim. "": not known."""

    boot_id: str
    pod_uid: str
    claim_uid: str


UNKNOWN_MOUNT = Mount("", "", "")


class StartProofs:
    """Raises OSError as it comes. How a life ended is said while its stamp may still be on its way
    in another worker: one after the other, and nothing after that."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._clean_stop_epoch = BrokerEpoch(NO_EPOCH)
        self._boot_stamp: BootStamp | None = None
        self._disk_stamp: BootStamp | None = None
        self._one_at_a_time = Lock()
        self._is_over = False

    # guard: proofs-removed-before-logs-are-read (S1)
    def take(self) -> None:
        """Reads both and takes them off for good."""
        self._clean_stop_epoch = self._read_clean_stop()
        stamp = self._read_stamp(BOOT_STAMP)
        # A life that stopped cleanly was not killed: what is missing now went after its last fsync.
        self._boot_stamp = None if self.has_clean_stop else stamp
        self._disk_stamp = stamp or self._read_stamp(SPENT_STAMP)
        self._disk.remove(self._path / CLEAN_STOP)
        if stamp is None:
            self._disk.remove(self._path / BOOT_STAMP)
        else:
            self._disk.rename(self._path / BOOT_STAMP, self._path / SPENT_STAMP)
        self._disk.sync_directory(self._path)

    # guard: damage-voids-proofs (S8)
    def weigh(self, only_a_torn_tail: bool) -> None:
        """Before recovery cuts a log. A kill cuts at most one batch short, at the very end of a log
        (S8); that was not synced, and so nothing else was that recovery cut. Of other damage it is
        not known whether it was: a lost kernel leaves holes, a disk loses what it had. A clean stop
        leaves nothing to cut. Durable, and before the cut: after it the log looks whole to the next
        start."""
        if only_a_torn_tail and not self.has_clean_stop:
            return
        self._clean_stop_epoch = BrokerEpoch(NO_EPOCH)
        if self._disk_stamp is not None:
            self._remove_stamps()

    @property
    def has_clean_stop(self) -> bool:
        """The logs were closed whole: their ends need no recovery, and no sync of that life failed.
        A boot stamp does not say the latter: it stays where a kill came before its removal, or
        where the controller's record was the first of the two (S8)."""
        return self._clean_stop_epoch != NO_EPOCH

    # guard: synced-prefix-of-this-mount (S29)
    def was_served_at(self, mount: Mount) -> bool:
        """Whether the last life that registered had the volume there: the kernel and the mount are
        the same since, and so files are as processes left them. However many lives came between
        that did not register. Once the stamp of this life is written it is not known any more."""
        stamp = self._disk_stamp
        if stamp is None or not mount.boot_id or not mount.pod_uid:
            return False
        return mount == (stamp.boot_id, stamp.pod_uid, stamp.claim_uid)

    @property
    def clean_stop_epoch(self) -> BrokerEpoch:
        """The life that was stopped cleanly; -1: none."""
        return self._clean_stop_epoch

    @property
    def boot_stamp(self) -> BootStamp | None:
        """Of a life that was killed."""
        return self._boot_stamp

    @property
    def disk_stamp(self) -> BootStamp | None:
        """Of the life that this disk served last, however it ended (S14)."""
        return self._disk_stamp

    def stamp(self, stamp: BootStamp) -> None:
        """The verdict on this start is durable at the controller. Durable before it returns; what
        was claimed is claimed no more."""
        with self._one_at_a_time:
            if self._is_over:
                return
            self._clean_stop_epoch = BrokerEpoch(NO_EPOCH)
            self._boot_stamp = self._disk_stamp = None
            self._disk.write_atomically(self._path / BOOT_STAMP, encode_stamp(stamp), durable=True)

    # guard: lost-write-removes-stamp (S8)
    def remove_stamp(self) -> None:
        """A write was lost: no later start may take this life for one that was only killed, nor
        this disk for one that has what it synced."""
        with self._one_at_a_time:
            self._is_over = True
            self._remove_stamps()

    def _remove_stamps(self) -> None:
        self._boot_stamp = self._disk_stamp = None
        for name in (BOOT_STAMP, SPENT_STAMP):
            self._disk.remove(self._path / name)
        self._disk.sync_directory(self._path)

    def give_back(self) -> None:
        """Writes again what was taken and still holds, for a start that changed nothing."""
        with self._one_at_a_time:
            self._is_over = True
            epoch, stamp = self._clean_stop_epoch, self._boot_stamp
            if stamp is not None:
                path = self._path / BOOT_STAMP
                self._disk.write_atomically(path, encode_stamp(stamp), durable=True)
            if epoch != NO_EPOCH:
                path = self._path / CLEAN_STOP
                self._disk.write_atomically(path, encode_clean_stop(epoch), durable=True)

    def _read_clean_stop(self) -> BrokerEpoch:
        try:
            return decode_clean_stop(self._disk.read(self._path / CLEAN_STOP))
        except (FileNotFoundError, MalformedFile):
            return BrokerEpoch(NO_EPOCH)

    def _read_stamp(self, name: str) -> BootStamp | None:
        try:
            return decode_stamp(self._disk.read(self._path / name))
        except (FileNotFoundError, MalformedFile):
            return None


def encode_stamp(stamp: BootStamp) -> bytes:
    content = {
        "version": 0,
        "bootId": stamp.boot_id,
        "podUid": stamp.pod_uid,
        "claimUid": stamp.claim_uid,
        "brokerEpoch": stamp.broker_epoch,
    }
    return json.dumps(content).encode()


def decode_stamp(data: bytes) -> BootStamp:
    """Raises MalformedFile."""
    try:
        content = json.loads(data)
    except ValueError as error:
        raise MalformedFile(f"expected JSON, found {data[:64]!r}") from error
    if not isinstance(content, dict) or content.get("version") != 0:
        raise MalformedFile(f"expected version 0, found {data[:64]!r}")
    texts = [content.get(name) for name in _TEXT_FIELDS]
    epoch = content.get("brokerEpoch")
    if not all(isinstance(text, str) for text in texts) or type(epoch) is not int:
        raise MalformedFile(f"expected a boot stamp, found {data[:200]!r}")
    boot_id, pod_uid, claim_uid = (str(text) for text in texts)
    return BootStamp(boot_id, pod_uid, claim_uid, BrokerEpoch(epoch))
