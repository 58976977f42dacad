"""Compress and decompress the records of a batch, within a limit of bytes.

Codec numbers and formats: Apache Kafka, CompressionType (KIP-110 for zstd). gzip, lz4 and zstd are
standard frames; snappy is the stream of snappy-java or one raw block, as librdkafka sends it.
Frames are written as Kafka's own classes write them: Java clients cannot read LZ4 frames with
linked blocks.
"""

import mmap
import zlib
from struct import Struct
from struct import error as StructError

import cramjam

from tidemark_broker.kafka_wire.records.errors import CorruptBatch, UnsupportedCompression

MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024  # against a small batch that unpacks to gigabytes

_NONE, _GZIP, _SNAPPY, LZ4, _ZSTD = range(5)
_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
_FRAMED = {LZ4: cramjam.lz4, _ZSTD: cramjam.zstd}
_GZIP_WBITS = 31
_ZSTD_LEVEL = 3  # Kafka's default

# snappy-java: magic, version and compatible version, then blocks of a length and that many bytes.
_SNAPPY_STREAM = b"\x82SNAPPY\x00"
_SNAPPY_VERSIONS = Struct(">ii")
_SNAPPY_BLOCK = Struct(">i")
_SNAPPY_START = len(_SNAPPY_STREAM) + _SNAPPY_VERSIONS.size
_SNAPPY_BLOCK_BYTES = 32 * 1024

# LZ4: magic, descriptor (independent blocks of 64 KiB, no checksums) and its checksum, then blocks
# of a length and that many bytes; a length's highest bit says that the block is not compressed.
_LZ4_START = bytes.fromhex("04224d18604082")
_LZ4_MAGIC = _LZ4_START[:4]
_LZ4_INDEPENDENT = 0x20  # of the descriptor's first byte
FRAME_START_BYTES = len(_LZ4_MAGIC) + 1
_LZ4_BLOCK = Struct("<I")
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_PLAIN = 0x80000000
_LZ4_END = _LZ4_BLOCK.pack(0)
_IS_FULL = "failed to write whole buffer"  # cramjam's word for a limit that is hit


class _TooLarge(Exception):
    pass


def decompressed(codec: int, body: memoryview, most_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Decompress `body`; `codec` is the number in a batch's attributes.

    Raises CorruptBatch, with positions from the start of the body, and UnsupportedCompression for
    more than `most_bytes`: such a batch may be intact, and its readers may decompress it.
    """
    try:
        if codec == _NONE:
            return bytes(body)
        if codec == _GZIP:
            return _gunzipped(body, most_bytes)
        if codec == _SNAPPY:
            return _unsnapped(body, most_bytes)
        return _unframed(codec, body, most_bytes)
    except _TooLarge as error:
        text = f"records of more than {most_bytes} bytes after decompression by {_NAMES[codec]}"
        raise UnsupportedCompression(f"{text} are not decompressed") from error


def packed(codec: int, body: bytes) -> bytes:
    """Compress `body`; the result is the same bytes at each replica."""
    if codec == _NONE:
        return body
    if codec == _GZIP:
        packer = zlib.compressobj(wbits=_GZIP_WBITS)
        return packer.compress(body) + packer.flush()
    if codec == _SNAPPY:
        return _snapped(body)
    if codec == LZ4:
        return _lz4_framed(body)
    return bytes(cramjam.zstd.compress(body, level=_ZSTD_LEVEL))


def has_linked_blocks(frame: bytes) -> bool:
    """Return whether `frame` begins an LZ4 frame with linked blocks.

    Java clients cannot read them. Earlier versions of `packed` wrote such frames.
    FRAME_START_BYTES of the frame are enough.
    """
    is_frame = frame.startswith(_LZ4_MAGIC) and len(frame) > len(_LZ4_MAGIC)
    return is_frame and not frame[len(_LZ4_MAGIC)] & _LZ4_INDEPENDENT


def _corrupt(codec: int, found: str) -> CorruptBatch:
    return CorruptBatch(0, f"a complete {_NAMES[codec]} stream", found)


def _gunzipped(body: memoryview, most_bytes: int) -> bytes:
    inflater = zlib.decompressobj(wbits=_GZIP_WBITS)
    try:
        found = inflater.decompress(body, most_bytes)
    except zlib.error as error:
        raise _corrupt(_GZIP, str(error)) from error
    if inflater.eof:
        return found
    if len(found) == most_bytes:
        raise _TooLarge
    raise _corrupt(_GZIP, f"no end within {len(body)} bytes")


def _unframed(codec: int, body: memoryview, most_bytes: int) -> bytes:
    # Only pages that are written to become memory, so that the limit costs nothing.
    with mmap.mmap(-1, most_bytes) as room:
        try:
            size = _FRAMED[codec].decompress_into(body, room)
        except cramjam.DecompressionError as error:
            if _IS_FULL in str(error):
                raise _TooLarge from error
            raise _corrupt(codec, str(error)) from error
        return room[:size]


def _unsnapped(body: memoryview, most_bytes: int) -> bytes:
    if bytes(body[: len(_SNAPPY_STREAM)]) != _SNAPPY_STREAM:
        return _unsnapped_block(body, most_bytes)
    if len(body) < _SNAPPY_START:
        raise _corrupt(_SNAPPY, f"{len(body)} bytes of its {_SNAPPY_START} first")
    found = bytearray()
    position = _SNAPPY_START
    while position < len(body):
        try:
            (size,) = _SNAPPY_BLOCK.unpack_from(body, position)
        except StructError as error:
            raise _corrupt(_SNAPPY, f"{len(body) - position} bytes behind a block") from error
        position += _SNAPPY_BLOCK.size
        if not 0 < size <= len(body) - position:
            raise _corrupt(_SNAPPY, f"a block of {size} bytes of {len(body) - position}")
        found += _unsnapped_block(body[position : position + size], most_bytes - len(found))
        position += size
    return bytes(found)


def _unsnapped_block(block: memoryview, most_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > most_bytes:
            raise _TooLarge
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _corrupt(_SNAPPY, str(error)) from error


def _snapped(body: bytes) -> bytes:
    pieces = [_SNAPPY_STREAM, _SNAPPY_VERSIONS.pack(1, 1)]
    for start in range(0, len(body), _SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(body[start : start + _SNAPPY_BLOCK_BYTES]))
        pieces += (_SNAPPY_BLOCK.pack(len(block)), block)
    return b"".join(pieces)


def _lz4_framed(body: bytes) -> bytes:
    pieces = [_LZ4_START]
    for start in range(0, len(body), _LZ4_BLOCK_BYTES):
        plain = body[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            pieces += (_LZ4_BLOCK.pack(len(block)), block)
        else:
            pieces += (_LZ4_BLOCK.pack(len(plain) | _LZ4_PLAIN), plain)
    return b"".join((*pieces, _LZ4_END))
