"""Store producer states on disk, in Kafka's `<offset>.snapshot` and our `<offset>.producers`.

Kafka's file keeps one batch per producer, so after a restart up to four of a client's batches in
flight would be rejected (S24); ours keeps them all. Both hold the state when the log ended at the
offset of their name. They only save reading the log: they are written without a sync when the log
is rolled, left out when the disk is full, and skipped if corrupt or of another history than the
log's. Ours names the leader epoch of the batch before it: the same epoch at the same offset means
the same log below.
"""

import re
from collections.abc import Collection, Iterable
from errno import EIO
from pathlib import Path
from struct import Struct
from struct import error as StructError

from crc32c import crc32c
from tidemark_protocol.ids import NO_EPOCH, LeaderEpoch, Offset

from tidemark_broker.log.checkpoint_formats import MalformedFile
from tidemark_broker.log.disk import Disk
from tidemark_broker.log.errors import NO_ROOM_ERRORS
from tidemark_broker.log.leader_epoch_cache import LeaderEpochs
from tidemark_broker.log.producer_state_entry import (
    RETAINED_BATCHES,
    SEQUENCES,
    ProducerBatch,
    ProducerEntry,
    ProducerStateEntries,
)

KAFKA_SUFFIX = ".snapshot"
SIDE_SUFFIX = ".producers"
_NAME = re.compile(r"^(\d{20})\.(?:snapshot|producers)$")

_VERSION = 1
_HEAD = Struct(">hI")  # version, CRC32C of all that follows
_COUNT = Struct(">i")
# Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first
# offset of the open transaction. Kafka: ProducerStateManager, PRODUCER_SNAPSHOT_ENTRY_SCHEMA.
_KAFKA_ENTRY = Struct(">qhiqiqiq")
_NO_TRANSACTION = (-1, -1)
_SIDE_HEAD = Struct(">iqi")  # leader epoch before the offset, highest producer id, entries
_SIDE_ENTRY = Struct(">q?b")  # producer id, whether older batches are forgotten, batches
_SIDE_BATCH = Struct(">hiqiq")  # epoch, last sequence, last offset, offset delta, timestamp


def encode_kafka_snapshot(states: ProducerStateEntries) -> bytes:
    body = bytearray(_COUNT.pack(len(states)))
    for producer_id, entry in states:
        last = entry.batches[-1]
        body += _KAFKA_ENTRY.pack(
            producer_id,
            last.producer_epoch,
            last.last_sequence,
            last.last_offset,
            last.last_offset - last.first_offset,
            last.timestamp_ms,
            *_NO_TRANSACTION,
        )
    return _HEAD.pack(_VERSION, crc32c(bytes(body))) + body


def decode_kafka_snapshot(data: bytes) -> ProducerStateEntries:
    """Decode Kafka's snapshot, with a window of one batch for each producer.

    Raises MalformedFile.
    """
    body = _checked_body(data)
    states = ProducerStateEntries()
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _KAFKA_ENTRY.size:
        raise MalformedFile(f"{count} producers in {len(body)} bytes")
    for fields in _KAFKA_ENTRY.iter_unpack(body[_COUNT.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, *_ = fields
        batch = _batch(epoch, last_sequence, last_offset, delta, timestamp_ms)
        states.restore(producer_id, ProducerEntry((batch,), has_removed_epochs=True))
    return states


# guard: snapshot-has-five-batches (S24)
def encode_side_snapshot(states: ProducerStateEntries, epoch_before: LeaderEpoch) -> bytes:
    body = bytearray(_SIDE_HEAD.pack(epoch_before, states.highest_producer_id, len(states)))
    for producer_id, entry in states:
        body += _SIDE_ENTRY.pack(producer_id, entry.has_removed_epochs, len(entry.batches))
        for batch in entry.batches:
            body += _SIDE_BATCH.pack(
                batch.producer_epoch,
                batch.last_sequence,
                batch.last_offset,
                batch.last_offset - batch.first_offset,
                batch.timestamp_ms,
            )
    return _HEAD.pack(_VERSION, crc32c(bytes(body))) + body


def decode_side_snapshot(data: bytes) -> tuple[ProducerStateEntries, LeaderEpoch]:
    """Decode our snapshot; return it with the leader epoch of the batch before it.

    Raises MalformedFile.
    """
    body = _checked_body(data)
    states = ProducerStateEntries()
    try:
        epoch_before, highest_producer_id, count = _SIDE_HEAD.unpack_from(body)
        position = _SIDE_HEAD.size
        for _ in range(count):
            producer_id, has_removed_epochs, batch_count = _SIDE_ENTRY.unpack_from(body, position)
            position += _SIDE_ENTRY.size
            if not 1 <= batch_count <= RETAINED_BATCHES:
                raise MalformedFile(f"{batch_count} batches of producer {producer_id}")
            batches = [
                _batch(*_SIDE_BATCH.unpack_from(body, position + at * _SIDE_BATCH.size))
                for at in range(batch_count)
            ]
            position += batch_count * _SIDE_BATCH.size
            states.restore(
                producer_id, ProducerEntry(batches, has_removed_epochs=has_removed_epochs)
            )
    except StructError as error:
        raise MalformedFile(f"producers truncated: {error}") from error
    if position != len(body):
        raise MalformedFile(f"{count} producers end at {position} of {len(body)} bytes")
    states.record_highest(highest_producer_id)
    return states, LeaderEpoch(epoch_before)


def _checked_body(data: bytes) -> bytes:
    if len(data) < _HEAD.size + _COUNT.size:
        raise MalformedFile(f"expected a snapshot of producers, found {len(data)} bytes")
    version, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if version != _VERSION or crc != crc32c(body):
        raise MalformedFile(f"expected version {_VERSION} and its CRC32C, found {version}")
    return body


def _batch(
    epoch: int, last_sequence: int, last_offset: int, offset_delta: int, timestamp_ms: int
) -> ProducerBatch:
    return ProducerBatch(
        epoch,
        (last_sequence - offset_delta) % SEQUENCES,
        last_sequence,
        Offset(last_offset - offset_delta),
        Offset(last_offset),
        timestamp_ms,
    )


class ProducerSnapshots:
    """The snapshot files of one log."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory

    def write_if_possible(
        self,
        states: ProducerStateEntries,
        offset: Offset,
        epochs: LeaderEpochs,
        disk: Disk | None = None,
    ) -> bool:
        """Write a snapshot of a log that ends at `offset`, without a sync.

        Returns whether it exists now. `disk` is another way to the same files. Raises OSError other
        than a full disk.
        """
        is_written = False
        epoch_before = epochs.epoch_at(Offset(offset - 1))
        try:
            for suffix, data in (
                (SIDE_SUFFIX, encode_side_snapshot(states, epoch_before)),
                (KAFKA_SUFFIX, encode_kafka_snapshot(states)),
            ):
                (disk or self._disk).write_atomically(
                    self._path(offset, suffix), data, durable=False
                )
                is_written = True
        except OSError as error:
            if error.errno not in NO_ROOM_ERRORS:
                raise
        return is_written

    def sync(self, offset: Offset) -> None:
        """Sync a snapshot; one that is removed meanwhile needs no sync. Called in a worker.

        Raises OSError.
        """
        for suffix in (SIDE_SUFFIX, KAFKA_SUFFIX):
            try:
                self._disk.sync_file(self._path(offset, suffix))
            except FileNotFoundError:
                continue

    def remove_above(self, offset: Offset) -> None:
        """Remove snapshots above `offset`: the log was truncated there."""
        self._remove(known for known in self._offsets() if known > offset)

    def prune(self, kept: Collection[Offset]) -> None:
        """Remove all but the newest snapshot and those in `kept`, one for each segment."""
        offsets = self._offsets()
        self._remove(offset for offset in offsets[:-1] if offset not in kept)

    def load_newest(
        self,
        epochs: LeaderEpochs,
        *,
        first_offset: Offset,
        log_start_offset: Offset,
        log_end_offset: Offset,
    ) -> tuple[ProducerStateEntries, Offset]:
        """Return the newest usable snapshot and its offset, and remove those above the log's end.

        Without one it returns an empty state and the first offset on the disk. Raises OSError.
        """
        self.remove_above(log_end_offset)
        offsets = [known for known in self._offsets() if known >= first_offset]
        for offset in reversed(offsets):
            try:
                data = self._read(self._path(offset, SIDE_SUFFIX))
                states, epoch_before = decode_side_snapshot(data)
            except (FileNotFoundError, MalformedFile):
                continue
            if _is_of_this_log(offset, epoch_before, epochs, log_start_offset):
                return states, offset
            self._remove((offset,))
        for offset in reversed(offsets):
            if self._disk.exists(self._path(offset, SIDE_SUFFIX)):
                continue  # damaged: nothing else says of which history its companion is
            try:
                data = self._read(self._path(offset, KAFKA_SUFFIX))
                return decode_kafka_snapshot(data), offset  # of a log that Kafka wrote
            except (FileNotFoundError, MalformedFile):
                continue
        return ProducerStateEntries(), first_offset

    def _read(self, path: Path) -> bytes:
        """Read a file; raise MalformedFile for a bad sector too.

        The log has the same facts. Raises OSError.
        """
        try:
            return self._disk.read(path)
        except OSError as error:
            if error.errno != EIO:
                raise
            raise MalformedFile(f"{path}: {error}") from error

    def _path(self, offset: Offset, suffix: str) -> Path:
        return self._directory / f"{offset:020d}{suffix}"

    def _offsets(self) -> list[Offset]:
        names = self._disk.list_names(self._directory)
        matches = (_NAME.match(name) for name in names)
        return sorted({Offset(int(match[1])) for match in matches if match})

    def _remove(self, offsets: Iterable[Offset]) -> None:
        """Remove both files of each offset.

        A power loss in between leaves the one that names its history.
        """
        for offset in offsets:
            for suffix in (KAFKA_SUFFIX, SIDE_SUFFIX):
                self._disk.remove(self._path(offset, suffix))


def _is_of_this_log(
    offset: Offset, epoch_before: LeaderEpoch, epochs: LeaderEpochs, log_start_offset: Offset
) -> bool:
    """Return whether a snapshot is of this log's history.

    A removal that a power loss undid leaves a snapshot of batches that were truncated. Below the
    log's start nothing is ever truncated, and epochs are unknown.
    """
    known = epochs.epoch_at(Offset(offset - 1))
    return known == epoch_before or (known == NO_EPOCH and offset <= log_start_offset)
