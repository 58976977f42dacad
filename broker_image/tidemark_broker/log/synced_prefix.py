"""Keep what is known of a segment's synced prefix for the next start on the same kernel.

At each checkpoint of the recovery points a log that has grown copies, on the loop, what it knows of
its active segment: both indexes, timestamps, producers. A worker syncs the log, then writes the
copy to `<base offset>.synced`. A start after a kill reads that instead of all the batches it
describes (`recovery`, `producer_state_manager`).

The file is not synced and need not be. Under the kernel that wrote it, files are as processes left
them, and it is removed before what it describes changes: with the index files, where a segment is
truncated, retired or replaced. A file from before the kernel was lost is not read at all
(`log_manager`): it may be older than a truncation, and what was written after that truncation may
have holes (decision 0074).
"""

from dataclasses import dataclass
from struct import Struct
from struct import error as StructError

from crc32c import crc32c
from tidemark_protocol.ids import LeaderEpoch, Offset

from tidemark_broker.log.checkpoint_formats import MalformedFile
from tidemark_broker.log.indexes import MalformedIndex, OffsetIndex, TimeIndex
from tidemark_broker.log.producer_snapshots import decode_side_snapshot, encode_side_snapshot
from tidemark_broker.log.producer_state_entry import ProducerStateEntries

SYNCED_SUFFIX = ".synced"

_VERSION = 1
_HEAD = Struct(">hI")  # version, CRC32C of all that follows
# Offsets: base, next. Bytes: size, since the last index entry. Timestamps: largest, the offset that
# has it, first. Entries of the offset index, of the time index.
_FIELDS = Struct(">qqqqqqqii")


@dataclass(frozen=True, slots=True)
class SyncedPrefix:
    """All batches of the segment at `base_offset` below `next_offset`, which are `size_bytes`."""

    base_offset: Offset
    next_offset: Offset
    size_bytes: int
    bytes_since_index: int
    max_timestamp_ms: int
    max_timestamp_offset: Offset
    first_timestamp_ms: int  # NO_TIMESTAMP: none
    offset_index: OffsetIndex
    time_index: TimeIndex
    producers: ProducerStateEntries  # of the whole log, as of `next_offset`
    epoch_before: LeaderEpoch  # of the batch before `next_offset`

    def encode(self) -> bytes:
        body = b"".join(
            (
                _FIELDS.pack(
                    self.base_offset,
                    self.next_offset,
                    self.size_bytes,
                    self.bytes_since_index,
                    self.max_timestamp_ms,
                    self.max_timestamp_offset,
                    self.first_timestamp_ms,
                    len(self.offset_index),
                    len(self.time_index),
                ),
                self.offset_index.to_memory(),
                self.time_index.to_memory(),
                encode_side_snapshot(self.producers, self.epoch_before),
            )
        )
        return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_synced_prefix(data: bytes) -> SyncedPrefix:
    """Decode a synced prefix.

    Raises MalformedFile.
    """
    body = memoryview(data)[_HEAD.size :]
    try:
        version, checksum = _HEAD.unpack_from(data)
        if version != _VERSION or checksum != crc32c(body):
            raise MalformedFile(f"expected version {_VERSION} and its CRC32C, found {version}")
        base, end, size, since_index, max_ms, max_at, first_ms, *entries = _FIELDS.unpack_from(body)
        rest = body[_FIELDS.size :]
        offset_index, rest = OffsetIndex.from_memory(rest, entries[0])
        time_index, rest = TimeIndex.from_memory(rest, entries[1])
    except (StructError, MalformedIndex) as error:
        raise MalformedFile(f"a synced prefix of {len(data)} bytes: {error}") from error
    producers, epoch_before = decode_side_snapshot(bytes(rest))
    return SyncedPrefix(
        base_offset=Offset(base),
        next_offset=Offset(end),
        size_bytes=size,
        bytes_since_index=since_index,
        max_timestamp_ms=max_ms,
        max_timestamp_offset=Offset(max_at),
        first_timestamp_ms=first_ms,
        offset_index=offset_index,
        time_index=time_index,
        producers=producers,
        epoch_before=epoch_before,
    )
