"""Read a block of Prometheus's database from its files (tsdb/docs/format): index, then chunks.

Snapshots and the object storage of Thanos and Mimir hold the same blocks. Lengths, checksums and
references are checked before use. What is not decoded (chunks of another encoding, downsampled
blocks, deletions) is rejected, not guessed.
"""

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import crc32c
import msgspec
import numpy as np

from tidemark_audit.aggregation.samples import SampleBatch, within
from tidemark_audit.metrics.families import READ_NAMES, SeriesKey, series_key
from tidemark_audit.sources.batches import BATCH_SAMPLES
from tidemark_audit.sources.protobuf import BadMessage, varint
from tidemark_audit.sources.source import Slice, SourceError, Window
from tidemark_audit.sources.xor_chunks import BadChunk, decode

INDEX_MAGIC, CHUNKS_MAGIC = 0xBAAAD700, 0x85BD40DD
TOC_BYTES = 6 * 8 + 4
TOMBSTONES_HEAD = 5 + 4  # magic, version, checksum: a file without deletions
XOR = 1
CHUNKS_PER_SLICE = BATCH_SAMPLES // 120
_Ref = tuple[SeriesKey, int]  # a series and where one of its chunks stands


class BadBlock(ValueError):
    """Report bytes that are not an index, or contradict themselves."""


@dataclass(frozen=True, slots=True)
class BlockSlice:
    """Some chunks of a block."""

    directory: Path
    refs: tuple[_Ref, ...]
    start_ms: int
    end_ms: int

    @property
    def place(self) -> str:
        return f"{self.directory} ({len(self.refs)} chunks)"

    def read(self) -> Iterator[SampleBatch]:
        try:
            yield self._samples()
        except (BadBlock, BadChunk, BadMessage, OSError) as error:
            raise unreadable(self.directory, error) from error

    def _samples(self) -> SampleBatch:
        files: dict[int, memoryview] = {}
        chunks = []
        for _, ref in self.refs:
            number = (ref >> 32) + 1
            if number not in files:
                files[number] = _mapped(self.directory / "chunks" / f"{number:06d}")
            chunks.append(_chunk(files[number], ref & 0xFFFFFFFF))
        counts, times, values = decode(chunks)
        place: dict[SeriesKey, int] = {}
        series = [place.setdefault(key, len(place)) for key, _ in self.refs]
        batch = SampleBatch(
            tuple(place), np.repeat(np.array(series, dtype=np.int32), counts), times, values
        )
        return within(batch, self.start_ms, self.end_ms)


class _Downsample(msgspec.Struct):
    resolution: int = 0


class _Thanos(msgspec.Struct):
    downsample: _Downsample = msgspec.field(default_factory=_Downsample)


class _Meta(msgspec.Struct, rename="camel"):
    """Hold the fields of meta.json that the audit uses."""

    min_time: int
    max_time: int
    thanos: _Thanos = msgspec.field(default_factory=_Thanos)


@dataclass(frozen=True, slots=True)
class TsdbBlock:
    directory: Path
    kind: str = "TSDB block"
    is_live: bool = False

    @property
    def place(self) -> str:
        return str(self.directory)

    def slices(self, window: Window) -> Sequence[Slice]:
        try:
            start_ms, end_ms = self._times()
            if window.start_ms is not None:
                start_ms = max(start_ms, window.start_ms)
            if window.end_ms is not None:
                end_ms = min(end_ms, window.end_ms)
            if start_ms >= end_ms:
                return []
            refs = list(chunk_refs((self.directory / "index").read_bytes(), start_ms, end_ms))
        except (BadBlock, BadMessage, OSError, ValueError) as error:
            raise unreadable(self.directory, error) from error
        return [
            BlockSlice(self.directory, tuple(refs[at : at + CHUNKS_PER_SLICE]), start_ms, end_ms)
            for at in range(0, len(refs), CHUNKS_PER_SLICE)
        ]

    def _times(self) -> tuple[int, int]:
        meta = msgspec.json.decode((self.directory / "meta.json").read_bytes(), type=_Meta)
        if resolution := meta.thanos.downsample.resolution:
            raise BadBlock(f"a down-sampled block (resolution {resolution})")
        tombstones = self.directory / "tombstones"
        if tombstones.exists() and tombstones.stat().st_size > TOMBSTONES_HEAD:
            raise BadBlock("pending deletions (run clean_tombstones)")
        return meta.min_time, meta.max_time

    def histogram_series(self) -> int:
        return 0  # only families that the audit reads are looked for

    def ends_ms(self) -> int | None:
        try:
            return self._times()[1]
        except (BadBlock, OSError, ValueError) as error:
            raise unreadable(self.directory, error) from error

    def first_batch(self, window: Window) -> SampleBatch | None:
        slices = self.slices(window)
        return next(iter(slices[0].read())) if slices else None


def unreadable(directory: Path, error: Exception) -> SourceError:
    return SourceError(
        str(directory),
        expected="a complete TSDB block of Prometheus",
        found=f"{type(error).__name__}: {error}",
        to_do="copy the block again, or export it with promtool",
    )


def _mapped(path: Path) -> memoryview:
    """Map a file: a chunk file has up to 512 MiB, of which a slice needs a few pages."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _chunk(segment: memoryview, offset: int) -> bytes:
    """Return the samples of the chunk at the offset, without length, encoding and checksum."""
    if len(segment) < 8 or int.from_bytes(segment[:4], "big") != CHUNKS_MAGIC:
        raise BadBlock("a chunk file without its magic number")
    length, place = varint(segment, offset)
    end = place + 1 + length
    if end + 4 > len(segment):
        raise BadBlock(f"a chunk of {length} bytes at {offset} of {len(segment)}")
    body = segment[place:end]
    if crc32c.crc32c(body) != int.from_bytes(segment[end : end + 4], "big"):
        raise BadBlock(f"a chunk at {offset} that does not match its checksum")
    if body[0] != XOR:
        raise BadBlock(f"a chunk of unknown encoding {body[0]}")
    return bytes(body[1:])


def chunk_refs(index: bytes, start_ms: int, end_ms: int) -> Iterator[_Ref]:
    """Yield the chunks that overlap [start, end), of the series that the audit reads."""
    data = memoryview(index)
    if len(data) < 5 + TOC_BYTES or int.from_bytes(data[:4], "big") != INDEX_MAGIC or data[4] != 2:
        raise BadBlock("no index of version 2")
    toc = data[len(data) - TOC_BYTES :]
    if crc32c.crc32c(toc[:-4]) != int.from_bytes(toc[-4:], "big"):
        raise BadBlock("a table of contents that does not match its checksum")
    symbols_at, series_at, labels_at = (
        int.from_bytes(toc[at : at + 8], "big") for at in (0, 8, 16)
    )
    if not symbols_at <= series_at <= labels_at <= len(data):
        raise BadBlock("sections in an impossible order")
    symbols = _symbols(data, symbols_at)
    wanted = {number for number, text in enumerate(symbols) if text in READ_NAMES}
    place = series_at
    while place < labels_at:
        place = (place + 15) // 16 * 16  # entries begin at multiples of 16
        if place >= labels_at or not data[place]:
            break
        length, body_at = varint(data, place)
        end = body_at + length
        if end + 4 > labels_at:
            raise BadBlock(f"a series of {length} bytes at {place}")
        body = data[body_at:end]
        if crc32c.crc32c(body) != int.from_bytes(data[end : end + 4], "big"):
            raise BadBlock(f"a series at {place} that does not match its checksum")
        yield from _series(body, symbols, wanted, start_ms, end_ms)
        place = end + 4


def _symbols(data: memoryview, at: int) -> list[str]:
    length = int.from_bytes(data[at : at + 4], "big")
    if at + 4 + length + 4 > len(data):
        raise BadBlock("a symbol table beyond the end of the file")
    body = data[at + 4 : at + 4 + length]
    if crc32c.crc32c(body) != int.from_bytes(data[at + 4 + length : at + 8 + length], "big"):
        raise BadBlock("a symbol table that does not match its checksum")
    count, place, found = int.from_bytes(body[:4], "big"), 4, []
    for _ in range(count):
        size, place = varint(body, place)
        if place + size > len(body):
            raise BadBlock("a symbol beyond the end of its table")
        found.append(bytes(body[place : place + size]).decode(errors="replace"))
        place += size
    return found


def _series(
    body: memoryview, symbols: list[str], wanted: set[int], start_ms: int, end_ms: int
) -> Iterator[_Ref]:
    count, place = varint(body, 0)
    labels: dict[str, str] = {}
    is_wanted = False
    for _ in range(count):
        name, place = varint(body, place)
        value, place = varint(body, place)
        if max(name, value) >= len(symbols):
            raise BadBlock("a label outside the symbol table")
        labels[symbols[name]] = symbols[value]
        is_wanted |= value in wanted and symbols[name] == "__name__"
    key = series_key(labels) if is_wanted else None
    if key is None:
        return
    chunks, place = varint(body, place)
    last_end = ref = 0
    for number in range(chunks):
        step, place = varint(body, place)
        first = _zigzag(step) if number == 0 else last_end + step
        length, place = varint(body, place)
        step, place = varint(body, place)
        ref = step if number == 0 else ref + _zigzag(step)
        last_end = first + length
        if first < end_ms and last_end >= start_ms:
            yield key, ref


def _zigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)
