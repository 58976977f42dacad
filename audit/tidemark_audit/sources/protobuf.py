"""Read and write the part of protobuf's wire format that remote read needs, bounds-checked."""

from collections.abc import Iterable, Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class BadMessage(ValueError):
    """Report bytes that are not a message."""


def varint(data: bytes | memoryview, place: int) -> tuple[int, int]:
    """Return (value, position after it).

    Raises BadMessage.
    """
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            raise BadMessage("a message that ends within a number")
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise BadMessage("a number longer than 64 bits")


def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield (number, value) of each field; fields of fixed width are skipped.

    Raises BadMessage.
    """
    place = 0
    while place < len(data):
        tag, place = varint(data, place)
        kind = tag & 7
        if kind == VARINT:
            value, place = varint(data, place)
            yield tag >> 3, value
        elif kind == BYTES:
            length, place = varint(data, place)
            if length > len(data) - place:
                raise BadMessage(f"a field of {length} bytes where {len(data) - place} are left")
            yield tag >> 3, data[place : place + length]
            place += length
        elif kind in (FIXED64, FIXED32):
            place += 8 if kind == FIXED64 else 4
        else:
            raise BadMessage(f"a field of unknown kind {kind}")


def labels_of(pairs: Iterable[memoryview]) -> dict[str, str]:
    """Return the labels of messages that have a name and a value.

    Raises BadMessage.
    """
    labels = {}
    for pair in pairs:
        texts = {number: _text(part) for number, part in fields(pair) if not isinstance(part, int)}
        labels[texts.get(1, "")] = texts.get(2, "")
    return labels


def _text(data: memoryview) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as error:
        raise BadMessage(f"a label that is not UTF-8: {bytes(data)!r}") from error


def signed(value: int) -> int:
    """Return the int64 that protobuf writes as two's complement in a varint."""
    return value - (1 << 64) if value >= 1 << 63 else value


def write_varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_number(number: int, value: int) -> bytes:
    return write_varint(number << 3 | VARINT) + write_varint(value)


def write_bytes(number: int, value: bytes) -> bytes:
    return write_varint(number << 3 | BYTES) + write_varint(len(value)) + value


def snappy_literals(data: bytes) -> bytes:
    """Return an uncompressed snappy block, which suits a request of two hundred bytes."""
    out = bytearray(write_varint(len(data)))
    for place in range(0, len(data), 60):
        window_part = data[place : place + 60]
        out.append((len(window_part) - 1) << 2)
        out += window_part
    return bytes(out)
