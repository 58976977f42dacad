"""Manage a broker's log directory: identity, exclusive lock, and the logs in it.

Opening happens in the order that safety requires: filesystem (S13), lock until the process ends
(I17), identity, clean shutdown records of the earlier process removed (S1), and only then the logs.
Whether an empty volume or an unclean shutdown costs a replica its place in the ISR is the
controller's decision; here it is reported. Methods that sync may run in a worker thread; one lock
keeps the checkpoint files consistent.
"""

import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from tidemark_protocol.controller_messages import BootRecord
from tidemark_protocol.ids import (
    NO_EPOCH,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Offset,
    TopicId,
)

from tidemark_broker.kafka_wire.records.errors import StorageError
from tidemark_broker.log import checkpoint_formats
from tidemark_broker.log.clean_shutdown import UNKNOWN_MOUNT, CleanShutdown, Mount
from tidemark_broker.log.disk import Disk, HeldLock
from tidemark_broker.log.disk_reserve import DiskReserve
from tidemark_broker.log.errors import (
    NO_ROOM_ERRORS,
    DirectoryLocked,
    DiskFull,
    StorageFailed,
    UnsafeFilesystem,
    WrongVolume,
)
from tidemark_broker.log.offset_checkpoint import OffsetCheckpoint
from tidemark_broker.log.partition_log import LogSettings, LogWrites, PartitionLog
from tidemark_broker.log.producer_state_entry import NO_PRODUCER_ID
from tidemark_broker.log.recovery import PreviousRun, write_again
from tidemark_broker.log.removed import LOG_NAME, delete_removed, deleted_name, name_with
from tidemark_broker.log.synced_prefix_files import synced_prefix_of
from tidemark_broker.log.unborn_logs import (
    JUST_MADE,
    UNBORN_SUFFIX,
    WantedLog,
    make_log_directories,
)
from tidemark_broker.log.volume_identity import VolumeIdentity, identify, write_identity

LogKey = tuple[TopicId, int]
T = TypeVar("T")

_STRAY_SUFFIX = "-stray"


class LogManager:
    def __init__(
        self,
        path: Path,
        disk: Disk,
        lock: HeldLock,
        broker_id: BrokerId,
        settings: LogSettings,
        new_uuid: Callable[[], uuid.UUID],
    ) -> None:
        """Use `open` instead."""
        self.path = path
        self.broker_id = broker_id
        self.directory_id = ""
        self.cluster_id = ""
        self.was_empty = False
        self.highest_broker_epoch = BrokerEpoch(NO_EPOCH)
        self.highest_controller_epoch = ControllerEpoch(NO_EPOCH)
        # Made in workers and looked at on the loop: iterate over a `copy()`, which no other thread
        # can interrupt. A list of the items may be: making its tuples starts garbage collections,
        # and what those finalize may let other threads run.
        self.logs: dict[LogKey, PartitionLog] = {}
        self.high_watermarks: dict[LogKey, Offset] = {}
        self.strays: list[Path] = []  # set aside at this start, with all they hold
        self.reserve = DiskReserve(path, disk)
        self._disk = disk = self.reserve.checkpoints
        self._lock = lock
        self._settings = settings
        self._new_uuid = new_uuid
        self.clean_shutdown = CleanShutdown(path, disk)
        self._files_lock = threading.RLock()
        self._let_go: dict[LogKey, Path] = {}  # still to be renamed
        self._making = threading.RLock()  # logs come and go one batch after the other
        self._offsets = tuple(
            OffsetCheckpoint(disk, path / name, self._files_lock)
            for name in checkpoint_formats.OFFSETS
        )
        self._recovery_points, self._high_watermarks, self._starts, *cleaned = self._offsets
        self._cleaned, self._frames_checked = cleaned

    # guard: no-network-filesystem (S13)
    @classmethod
    def open(
        cls,
        path: Path,
        disk: Disk,
        *,
        broker_id: BrokerId,
        settings: LogSettings,
        new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
        mount: Mount = UNKNOWN_MOUNT,
    ) -> "LogManager":
        """Lock and open a log directory; `mount` is where the volume is now.

        Raises DirectoryLocked (try again), WrongVolume, UnsafeFilesystem, StorageFailed.
        """
        try:
            if not disk.is_directory(path):
                disk.make_directory(path)
                disk.sync_directory(path.parent)
            filesystem = disk.network_filesystem(path)
            # S13: a lock of a filesystem of several machines may not lock.
            if filesystem is not None and not settings.allow_network_filesystem:
                raise UnsafeFilesystem(path, filesystem)
            lock = _lock(disk, path)
        except OSError as error:
            raise StorageFailed(f"cannot open log directory {path}: {error}") from error
        directory = cls(path, disk, lock, broker_id, settings, new_uuid)
        try:
            directory.reserve.look()
            directory._identify()
            directory.clean_shutdown.take()  # S1: before a log is read
            directory._load_logs(is_same_mount=directory.clean_shutdown.was_served_at(mount))
        except OSError as error:
            lock.release()
            raise StorageFailed(f"cannot open log directory {path}: {error}") from error
        except StorageError:
            lock.release()
            raise
        return directory

    # Whose it is

    def _identify(self) -> None:
        known = identify(self._disk, self.path, self.broker_id, self._new_uuid)
        self.directory_id, self.cluster_id, self.was_empty = known
        epochs = self._read(
            checkpoint_formats.HIGHEST_EPOCHS,
            checkpoint_formats.decode_highest_epochs,
            (NO_EPOCH, NO_EPOCH),
        )
        self.highest_broker_epoch = BrokerEpoch(epochs[0])
        self.highest_controller_epoch = ControllerEpoch(epochs[1])

    def _write_identity(self, cluster_id: str) -> None:
        known = VolumeIdentity(self.directory_id, cluster_id)
        write_identity(self._disk, self.path, self.broker_id, known)

    def set_cluster_id(self, cluster_id: str) -> None:
        """Store the cluster id at the first registration, durably.

        Raises WrongVolume if the volume belongs to another cluster.
        """
        if self.cluster_id == cluster_id:
            return
        if self.cluster_id:
            raise WrongVolume(self.path, f"cluster {cluster_id}", f"cluster {self.cluster_id}")
        self._guarded("write the cluster id", lambda: self._write_identity(cluster_id))
        self.cluster_id = cluster_id

    def record_epochs(self, broker_epoch: BrokerEpoch, controller_epoch: ControllerEpoch) -> None:
        """Store the highest broker and controller epochs seen, durably (S16).

        Called in a worker, maybe in several: two responses of a new controller arrive together.
        Raises DiskFull, StorageFailed.
        """
        with self._files_lock:
            known = self.highest_broker_epoch, self.highest_controller_epoch
            highest = max(known[0], broker_epoch), max(known[1], controller_epoch)
            if highest == known:
                return
            data = checkpoint_formats.encode_highest_epochs(*highest)
            self._guarded(
                "write epochs", lambda: self._write(checkpoint_formats.HIGHEST_EPOCHS, data)
            )
            self.highest_broker_epoch, self.highest_controller_epoch = highest

    # What the former life left as proof that nothing was lost

    @property
    def clean_stop_epoch(self) -> BrokerEpoch:
        """Return the broker epoch that shut down cleanly; -1: none, or its record is invalid."""
        return self.clean_shutdown.clean_stop_epoch

    @property
    def boot_stamp(self) -> BootRecord | None:
        """Return the boot record of a process that was only killed, or None."""
        return self.clean_shutdown.boot_stamp

    # guard: logs-synced-before-proof (S8)
    def secure_logs(self) -> None:
        """Sync what a killed process left in the page cache (S8). Called in a worker.

        It happens before its boot record is reported. An error invalidates the record, which is off
        the volume already, and ends the start. A clean shutdown left nothing unsynced.
        """
        if self.clean_stop_epoch != NO_EPOCH:
            return
        for log in tuple(self.logs.values()):
            log.flush()

    def write_boot_record(self, stamp: BootRecord) -> None:
        """Write the boot record once the decision on this start is durable (S1).

        Called in a worker. Raises DiskFull, StorageFailed: there is no record then, so a kill
        counts as an unclean shutdown.
        """
        self._guarded("write the boot record", lambda: self.clean_shutdown.stamp(stamp))

    def remove_boot_record(self) -> None:
        """Remove the boot record (S8).

        Called in a worker. Raises DiskFull, StorageFailed.
        """
        self._guarded("remove the boot record", self.clean_shutdown.remove_stored_boot_record)

    def restore_clean_shutdown(self) -> None:
        """Restore the clean shutdown records, for a process that ends before it registered.

        It wrote nothing, so they are as true as before. Called in a worker. Raises DiskFull,
        StorageFailed.
        """
        self._guarded("restore the clean shutdown file", self.clean_shutdown.give_back)

    # Opening the logs

    def _load_logs(self, *, is_same_mount: bool) -> None:
        """Open all logs.

        With `is_same_mount` files are as earlier processes wrote them, synced or not.
        """
        recovery_points = self._recovery_points.read()
        high_watermarks, log_starts = self._high_watermarks.read(), self._starts.read()
        cleaned_to, frames_checked_to = self._cleaned.read(), self._frames_checked.read()
        is_clean = self.clean_shutdown.has_clean_stop
        for name in self._disk.list_names(self.path):
            match = LOG_NAME.match(name)
            path = self.path / name
            if name.endswith(UNBORN_SUFFIX):
                self._disk.remove_tree(path)
            if match is None or not self._disk.is_directory(path):
                continue
            topic, partition = match[1], int(match[2])
            topic_id = self._topic_id_of(path)
            if topic_id is None or (topic_id, partition) in self.logs:
                self._rename_aside(path)
                continue
            at = (topic, partition)
            part = synced_prefix_of(self._disk, path) if is_same_mount else None
            recovery_point = recovery_points.get(at, Offset(0))
            if part is not None:  # it was written after a sync of all below
                recovery_point = max(recovery_point, part.next_offset)
            if not is_clean:
                write_again(self._disk, path, recovery_point, part)
            log = PartitionLog(
                self.reserve.data,
                path,
                topic=topic,
                topic_id=topic_id,
                partition=partition,
                settings=self._settings,
                previous=PreviousRun(
                    None if is_clean else recovery_point,
                    log_starts.get(at, Offset(0)),
                    part,
                    before_truncation=self.clean_shutdown.weigh,
                ),
                writes=self._writes_of(at),
            )
            log.cleaned_to = min(cleaned_to.get(at, Offset(0)), log.log_end_offset)
            log.frames_checked_to = min(frames_checked_to.get(at, Offset(0)), log.cleaned_to)
            self._recovery_points.lower({at: log.recovery_point})  # recovery may have cut it
            self._add(log)
            high_watermark = max(high_watermarks.get(at, Offset(0)), log.log_start_offset)
            self.high_watermarks[topic_id, partition] = high_watermark

    def _topic_id_of(self, path: Path) -> TopicId | None:
        try:
            data = self._disk.read(path / checkpoint_formats.PARTITION_METADATA)
            return checkpoint_formats.decode_partition_metadata(data)
        except (FileNotFoundError, checkpoint_formats.MalformedFile):
            return None

    def _rename_aside(self, path: Path) -> Path:
        """Rename a log of unknown topic to a name that is never loaded, and keep it."""
        stray = path.with_name(name_with(path.name, f".{self._new_uuid().hex}{_STRAY_SUFFIX}"))
        self._disk.rename(path, stray)
        self._disk.sync_directory(self.path)
        self.strays.append(stray)
        return stray

    @property
    def highest_producer_id(self) -> int:
        """Return the highest producer id in the logs or their snapshots (S5), or -1."""
        return max(
            (log.producers.highest_producer_id for log in tuple(self.logs.values())),
            default=NO_PRODUCER_ID,
        )

    @property
    def appended_bytes(self) -> int:
        """Return the bytes appended to all present logs since they were opened."""
        return sum(log.appended_bytes for log in tuple(self.logs.values()))

    # Logs come and go

    def create_log(
        self,
        topic: str,
        topic_id: TopicId,
        partition: int,
        settings: LogSettings | None = None,
    ) -> PartitionLog:
        """Return the log; create it as `create_logs` does if it does not exist."""
        if (topic_id, partition) not in self.logs:
            self.create_logs(((topic, topic_id, partition),), settings)
        return self.logs[topic_id, partition]

    def create_logs(
        self, wanted: Iterable[tuple[str, TopicId, int]], settings: LogSettings | None = None
    ) -> None:
        """Create the missing logs, empty and durable, with few syncs for all of them.

        `wanted` has (topic, topic id, partition). Logs of other topics with the same names are
        renamed first. Call it in a worker. Raises DiskFull, StorageFailed.
        """
        with self._making:
            missing = [each for each in wanted if each[1:] not in self.logs]
            if missing:
                action = f"create {missing[0][0]}-{missing[0][2]} ({len(missing)} logs)"
                used = settings or self._settings
                self._guarded(action, lambda: self._create_logs(missing, used))

    def _create_logs(
        self, missing: Sequence[tuple[str, TopicId, int]], settings: LogSettings
    ) -> None:
        paths = [self.path / f"{topic}-{partition}" for topic, _, partition in missing]
        taken = [path for path in paths if self._disk.is_directory(path)]
        with self._files_lock:  # no checkpoint tells of the former logs again
            for key, log in self.logs.copy().items() if taken else ():
                if log.directory in taken:
                    log.record_removed()
                    del self.logs[key]
                    self.high_watermarks.pop(key, None)
            # S23: before the directories exist
            self._drop_checkpoints([(topic, partition) for topic, _, partition in missing])
        for path in taken:
            self._rename_aside(path)
        make_log_directories(
            self.reserve.data,
            [
                WantedLog(path, topic_id, self._new_uuid().hex)
                for path, (_, topic_id, _) in zip(paths, missing, strict=True)
            ],
        )
        for path, (topic, topic_id, partition) in zip(paths, missing, strict=True):
            log = PartitionLog(
                self.reserve.data,
                path,
                topic=topic,
                topic_id=topic_id,
                partition=partition,
                settings=settings,
                previous=JUST_MADE,
                writes=self._writes_of((topic, partition)),
            )
            self._add(log)
            self.high_watermarks[topic_id, partition] = Offset(0)

    def _add(self, log: PartitionLog) -> None:
        self.logs[log.topic_id, log.partition] = log

    def _writes_of(self, at: checkpoint_formats.TopicPartition) -> LogWrites:
        return LogWrites(
            small=self.reserve.checkpoints,
            data=self.reserve.write_data,
            before_truncation=partial(self._record_truncation, at),
        )

    # guard: truncation-lowers-checkpoints (S31)
    def _record_truncation(self, at: checkpoint_formats.TopicPartition, offset: Offset) -> None:
        for offsets in self._offsets:
            offsets.lower({at: offset})

    # guard: recreated-log-drops-checkpoints (S23)
    def _drop_checkpoints(self, dropped: Sequence[checkpoint_formats.TopicPartition]) -> None:
        for offsets in self._offsets:
            offsets.drop(dropped)

    def let_go(self, key: LogKey) -> None:
        """Stop writing a log that is to be removed. Called on the loop.

        `remove_logs` does the rest.
        """
        self.high_watermarks.pop(key, None)
        log = self.logs.pop(key, None)
        if log is not None:
            log.record_removed()
            self._let_go[key] = log.directory

    def remove_logs(self, keys: Collection[LogKey]) -> None:
        """Rename logs to be deleted, with one sync for all of them.

        `delete_removed` frees the space after a grace period (S12). Call it in a worker. Raises
        DiskFull, StorageFailed.
        """
        with self._making:
            for key in keys:
                self.let_go(key)
            removed = [self._let_go.pop(key) for key in keys if key in self._let_go]
            if removed:
                self._guarded(f"remove {removed[0].name}", lambda: self._rename_removed(removed))

    def _rename_removed(self, directories: Sequence[Path]) -> None:
        for path in directories:
            unique = self._new_uuid().hex
            self._disk.rename(path, self.path / deleted_name(path.name, unique))
        self._disk.sync_directory(self.path)

    def delete_removed(self, *, now_s: float, grace_s: float) -> int:
        """Delete what was removed or truncated before the grace period; return how many entries.

        Times are wall clock. Called in a worker.
        """
        logs = tuple(self.logs.values())
        retired = [(log.directory, log.segments) for log in logs if log.segments.has_retired]
        return self._guarded(
            "delete removed logs",
            lambda: delete_removed(self._disk, self.path, retired, before_s=now_s - grace_s),
        )

    # Checkpoints

    # guard: truncation-voids-read-watermarks (S31)
    @property
    def truncations(self) -> int:
        """Return how often a log was truncated.

        Watermarks that were read before a truncation do not hold after it.
        """
        return self._high_watermarks.truncations

    # guard: watermarks-lowered-to-log-ends (S31)
    def lower_high_watermarks(self) -> None:
        """Lower the checkpointed high watermarks to the ends of their logs (S31).

        Called once the controller knows of watermarks that lie past the end of their logs (S9), and
        before a record follows that end. Called in a worker. Raises StorageFailed.
        """
        logs = tuple(self.logs.values())
        ends = {(log.topic, log.partition): log.log_end_offset for log in logs}
        self._guarded("lower high watermarks", lambda: self._high_watermarks.lower(ends))

    def checkpoint_high_watermarks(
        self, high_watermarks: Mapping[LogKey, Offset], *, truncations: int | None = None
    ) -> bool:
        """Write the high watermarks of existing logs, durably; others are dropped.

        Returns False and writes nothing if there were more truncations than the `truncations` when
        the watermarks were read. Truncations are synced first (S29): below a watermark that
        outlives the kernel there must be nothing that was truncated. Called in a worker. Raises
        DiskFull, StorageFailed: the older checkpoint stays.
        """
        for log in list(self.logs.values()):
            if log.owes_truncation:
                log.flush()
        with self._files_lock:
            offsets = {
                (log.topic, log.partition): min(high_watermarks[key], log.log_end_offset)
                for key, log in self.logs.copy().items()
                if key in high_watermarks
            }
            if truncations not in (None, self.truncations):
                return False
            self._guarded(
                "checkpoint high watermarks", lambda: self._high_watermarks.write(offsets)
            )
            return True

    def checkpoint_recovery_points(self) -> None:
        """Flush each log, then write how far they are durable. Called in a worker."""
        for log in list(self.logs.values()):
            if not log.failure:
                log.flush()
        self._write_recovery_points()

    def _write_recovery_points(self) -> None:
        with self._files_lock:
            logs = [((log.topic, log.partition), log) for log in list(self.logs.values())]
            offsets = (
                (self._recovery_points, {at: log.recovery_point for at, log in logs}),
                (self._starts, {at: log.log_start_offset for at, log in logs}),
                (self._cleaned, {at: log.cleaned_to for at, log in logs}),
                (self._frames_checked, {at: log.frames_checked_to for at, log in logs}),
            )

            def write() -> None:
                for checkpoint, stored in offsets:
                    checkpoint.write(stored)

            self._guarded("checkpoint recovery points", write)

    @property
    def durable_log_starts(self) -> Mapping[checkpoint_formats.TopicPartition, Offset]:
        """Return the log start offsets as they were last written."""
        return self._starts.stored

    def write_clean_stop(self, broker_epoch: BrokerEpoch) -> None:
        """Close each log for writing, then write the clean shutdown file, last.

        Raises DiskFull, StorageFailed: there is no file then, so the next start is unclean.
        """
        for log in list(self.logs.values()):
            log.close()
        self._write_recovery_points()
        data = checkpoint_formats.encode_clean_stop(broker_epoch)
        self._guarded(
            "write the clean shutdown file",
            lambda: self._write(checkpoint_formats.CLEAN_STOP, data),
        )

    def close(self) -> None:
        """Release the lock; without `write_clean_stop` before it the shutdown is unclean."""
        self._lock.release()

    # Files

    def _read(self, name: str, decode: Callable[[bytes], T], default: T) -> T:
        """Decode a file; if it is missing or malformed return the default, a safe value."""
        try:
            return decode(self._disk.read(self.path / name))
        except (FileNotFoundError, checkpoint_formats.MalformedFile):
            return default

    def _write(self, name: str, data: bytes) -> None:
        self._disk.write_atomically(self.path / name, data, durable=True)

    def _guarded(self, action: str, run: Callable[[], T]) -> T:
        try:
            return run()
        except OSError as error:
            kind = DiskFull if error.errno in NO_ROOM_ERRORS else StorageFailed
            raise kind(f"cannot {action} in {self.path}: {error}") from error


# guard: directory-lock (S13)
def _lock(disk: Disk, path: Path) -> HeldLock:
    lock_path = path / checkpoint_formats.LOCK
    try:
        return disk.lock(lock_path)
    except BlockingIOError as error:
        text = disk.read(lock_path)
        raise DirectoryLocked(path, int(text) if text.isdigit() else None) from error
