"""Define Kafka's requests and responses as tables of fields that one traversal reads and writes.

A table names each field once, with the versions that have it; values are plain dicts, tuples, ints
and strings. Hostile bytes cost bounded work: each length is checked against the bytes left, each
count against them and against a budget of elements for the whole frame, because an empty string of
one byte becomes an object of fifty. The traversal pauses after each element of an array, so that a
large frame is processed in slices. Types: Kafka protocol guide; tagged fields: KIP-482; nullable
structs: KIP-893.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import repeat
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from tidemark_protocol.ids import TopicId

from tidemark_broker.kafka_wire.messages.cooperative_steps import Steps, all_steps
from tidemark_broker.kafka_wire.messages.frames import Buffers, framed, request_header
from tidemark_broker.kafka_wire.messages.primitives import (
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    MAX_ELEMENTS,
    MAX_ELEMENTS_OF_PEERS,
    UINT16,
    MalformedFrame,
    Reader,
    compact_string,
    nullable_string,
    tagged_field,
    topic_id_to_bytes,
    unsigned_varint,
)

LAST = 32767
ZERO_TOPIC_ID = TopicId("00000000-0000-0000-0000-000000000000")

Values = dict[str, Any]
Item = TypeVar("Item")


class Each(Generic[Item]):
    """An array whose elements are made one by one while they are written.

    `steps_of` returns how many steps an element costs; None means one each.
    """

    __slots__ = ("_items", "_made_of", "_steps_of")

    def __init__(
        self,
        items: Sequence[Item],
        made_of: Callable[[Item], Any],
        steps_of: Callable[[Item], int] | None = None,
    ) -> None:
        self._items = items
        self._made_of = made_of
        self._steps_of = steps_of

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return map(self._made_of, self._items)

    def steps(self) -> Iterable[int]:
        return repeat(1) if self._steps_of is None else map(self._steps_of, self._items)


class TableReader(Reader):
    """A reader that knows the version and whether it is flexible."""

    __slots__ = ("is_flexible", "version")

    def __init__(
        self,
        data: bytes | bytearray | memoryview,
        version: int,
        *,
        is_flexible: bool,
        most_elements: int = MAX_ELEMENTS,
    ) -> None:
        super().__init__(data, most_elements=most_elements)
        self.version = version
        self.is_flexible = is_flexible


class TableWriter:
    """A writer that knows the version and whether it is flexible, and collects error codes."""

    __slots__ = ("errors", "is_flexible", "out", "version")

    def __init__(self, version: int, *, is_flexible: bool, errors: list[int] | None = None) -> None:
        self.errors = [] if errors is None else errors
        self.out = bytearray()
        self.version = version
        self.is_flexible = is_flexible


class Kind(Protocol):
    """A type of value, which reads and writes it; None is null where a field is nullable."""

    def read(self, reader: TableReader) -> Any: ...
    def write(self, writer: TableWriter, value: Any) -> None: ...


class _Number:
    def __init__(self, layout: Any) -> None:
        self._layout = layout

    def read(self, reader: TableReader) -> Any:
        return self._layout.unpack_from(reader.data, reader.take(self._layout.size))[0]

    def write(self, writer: TableWriter, value: Any) -> None:
        writer.out += self._layout.pack(value)


class _ErrorCode(_Number):
    """The kind of an error code; the writer collects those that are not NONE, for metrics."""

    def write(self, writer: TableWriter, value: Any) -> None:
        writer.out += self._layout.pack(value)
        if value:
            writer.errors.append(value)


class _Boolean:
    def read(self, reader: TableReader) -> Any:
        return reader.int8() != 0

    def write(self, writer: TableWriter, value: Any) -> None:
        writer.out.append(1 if value else 0)


class _TopicId:
    def read(self, reader: TableReader) -> Any:
        return reader.topic_id()

    def write(self, writer: TableWriter, value: Any) -> None:
        writer.out += topic_id_to_bytes(value)


class _String:
    def read(self, reader: TableReader) -> Any:
        return reader.compact_string() if reader.is_flexible else reader.nullable_string()

    def write(self, writer: TableWriter, value: Any) -> None:
        writer.out += compact_string(value) if writer.is_flexible else nullable_string(value)


class _Bytes:
    """The kind of bytes; a value is a view of the frame, so a caller that keeps it must copy it."""

    def read(self, reader: TableReader) -> Any:
        if reader.is_flexible:
            return reader.compact_bytes()
        size = reader.int32()
        if size < 0:
            return None
        start = reader.take(size)
        return memoryview(reader.data)[start : start + size]

    def write(self, writer: TableWriter, value: Any) -> None:
        size = -1 if value is None else len(value)
        writer.out += unsigned_varint(size + 1) if writer.is_flexible else INT32.pack(size)
        if value is not None:
            writer.out += value


BYTE = _Number(INT8)
SHORT = _Number(INT16)
ERROR_CODE = _ErrorCode(INT16)
UNSIGNED_SHORT = _Number(UINT16)
INT = _Number(INT32)
LONG = _Number(INT64)
DOUBLE = _Number(FLOAT64)
BOOLEAN = _Boolean()
TOPIC_ID = _TopicId()
STRING = _String()
BYTES = _Bytes()


@dataclass(frozen=True, slots=True)
class Field:
    """A field that versions `since` to `until` have; other versions read `default`.

    A field with a `tag` is a tagged field, written only where it differs from the default. Null is
    rejected before version `nullable_since`.
    """

    name: str
    kind: Kind
    since: int = 0
    until: int = LAST
    nullable_since: int = LAST
    default: Any = None
    tag: int | None = None

    def is_in(self, version: int) -> bool:
        return self.since <= version <= self.until


class ArrayOf:
    """The kind of an array, whose value is a tuple."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._stepwise = _stepwise(kind)
        self.has_arrays = True

    def read(self, reader: TableReader) -> Any:
        return all_steps(self.read_steps(reader))

    def write(self, writer: TableWriter, value: Any) -> None:
        all_steps(self.write_steps(writer, value))

    def read_steps(self, reader: TableReader) -> Steps[Any]:
        count = reader.count(smallest_bytes=1, is_flexible=reader.is_flexible)
        if count < 0:
            return None
        found = []
        read, stepwise = self._kind.read, self._stepwise
        for _ in range(count):
            element = read(reader) if stepwise is None else (yield from stepwise.read_steps(reader))
            if element is None:
                raise MalformedFrame("an element of an array: expected a value, found null")
            found.append(element)
            yield 1
        return tuple(found)

    def write_steps(self, writer: TableWriter, value: Any) -> Steps[None]:
        count = -1 if value is None else len(value)
        writer.out += unsigned_varint(count + 1) if writer.is_flexible else INT32.pack(count)
        if value is None:
            return
        write, stepwise = self._kind.write, self._stepwise
        steps_of_each = value.steps() if isinstance(value, Each) else repeat(1)
        for element, steps in zip(value, steps_of_each, strict=False):
            if stepwise is None:
                write(writer, element)
            else:
                yield from stepwise.write_steps(writer, element)
            yield steps


class _Planned(NamedTuple):
    """A field as one version has it."""

    name: str
    kind: Kind
    stepwise: "ArrayOf | Struct | None"
    is_there: bool
    is_nullable: bool
    default: Any


class Struct:
    """The kind of a struct: fields in order, then, in flexible versions, tagged fields."""

    def __init__(self, *fields: Field) -> None:
        self._plain = tuple(field for field in fields if field.tag is None)
        self._tagged = {field.tag: field for field in fields if field.tag is not None}
        self._untagged_values = {field.name: field.default for field in self._tagged.values()}
        self._plan = cache(self._planned)
        self.has_arrays = any(_stepwise(field.kind) is not None for field in self._plain)

    def _planned(self, version: int) -> tuple[_Planned, ...]:
        return tuple(
            _Planned(
                field.name,
                field.kind,
                _stepwise(field.kind),
                field.is_in(version),
                version >= field.nullable_since,
                field.default,
            )
            for field in self._plain
        )

    def read(self, reader: TableReader) -> Values:
        return all_steps(self.read_steps(reader))

    def write(self, writer: TableWriter, value: Mapping[str, Any]) -> None:
        all_steps(self.write_steps(writer, value))

    def read_steps(self, reader: TableReader) -> Steps[Values]:
        found: Values = {}
        for name, kind, stepwise, is_there, is_nullable, default in self._plan(reader.version):
            if not is_there:
                found[name] = default
                continue
            if stepwise is None:
                value = kind.read(reader)
            else:
                value = yield from stepwise.read_steps(reader)
            if value is None and not is_nullable:
                raise MalformedFrame(f"{name}: expected a value, found null")
            found[name] = value
        found.update(self._untagged_values)
        if reader.is_flexible:
            self._read_tagged(reader, found)
        return found

    def _read_tagged(self, reader: TableReader, found: Values) -> None:
        for tag, content in reader.tagged_fields(self._tagged):
            field = self._tagged.get(tag)
            if field is None or not field.is_in(reader.version):
                continue
            inner = TableReader(content.data, reader.version, is_flexible=True)
            inner.elements_left = reader.elements_left
            found[field.name] = field.kind.read(inner)
            inner.expect_end()
            reader.elements_left = inner.elements_left

    def write_steps(self, writer: TableWriter, value: Mapping[str, Any]) -> Steps[None]:
        for name, kind, stepwise, is_there, _, default in self._plan(writer.version):
            if not is_there:
                continue
            if stepwise is None:
                kind.write(writer, value.get(name, default))
            else:
                yield from stepwise.write_steps(writer, value.get(name, default))
        if writer.is_flexible:
            self._write_tagged(writer, value)

    def _write_tagged(self, writer: TableWriter, value: Mapping[str, Any]) -> None:
        if not self._tagged:
            writer.out += b"\x00"
            return
        version = writer.version
        tagged = []
        for tag, field in sorted(self._tagged.items()):
            content = value.get(field.name, field.default)
            if field.is_in(version) and content != field.default:
                inner = TableWriter(version, is_flexible=True)
                field.kind.write(inner, content)
                tagged.append(tagged_field(tag, bytes(inner.out)))
        writer.out += unsigned_varint(len(tagged)) + b"".join(tagged)


def _stepwise(kind: Kind) -> ArrayOf | Struct | None:
    """Return the kind if it has arrays, which are read and written in steps, else None."""
    return kind if isinstance(kind, ArrayOf | Struct) and kind.has_arrays else None


class NullableStruct:
    """The kind of a struct after a byte that is -1 for null and 1 for a value."""

    def __init__(self, *fields: Field) -> None:
        self._struct = Struct(*fields)

    def read(self, reader: TableReader) -> Values | None:
        return None if reader.int8() < 0 else self._struct.read(reader)

    def write(self, writer: TableWriter, value: Mapping[str, Any] | None) -> None:
        writer.out += INT8.pack(-1 if value is None else 1)
        if value is not None:
            self._struct.write(writer, value)


@dataclass(frozen=True, slots=True)
class Api:
    """One request and its response, in the versions that are served here."""

    api_key: int
    name: str
    min_version: int
    max_version: int
    first_flexible_version: int
    request: Struct
    response: Struct

    def is_flexible(self, version: int) -> bool:
        return version >= self.first_flexible_version

    def decode_request(self, reader: Reader, version: int) -> Values:
        """Decode a request as `request_steps` does, without a pause."""
        return all_steps(self.request_steps(reader, version))

    def request_steps(self, reader: Reader, version: int) -> Steps[Values]:
        """Decode a request in steps, from the byte after the header's client id.

        Bytes after the last field are ignored, as Kafka does: librdkafka sends three when it asks
        for all topics. Raises MalformedFrame.
        """
        if not self.min_version <= version <= self.max_version:
            raise MalformedFrame(
                f"{self.name}: expected version {self.min_version} to {self.max_version},"
                f" found {version}"
            )
        rest = memoryview(reader.data)[reader.position : reader.end]
        table_reader = TableReader(rest, version, is_flexible=self.is_flexible(version))
        if table_reader.is_flexible:
            table_reader.tagged_fields()  # the header's
        return (yield from self.request.read_steps(table_reader))

    def encode_response(
        self, correlation_id: int, version: int, values: Mapping[str, Any]
    ) -> Buffers:
        """Encode a response as `response_steps` does, without a pause."""
        return all_steps(self.response_steps(correlation_id, version, values))

    def response_steps(
        self,
        correlation_id: int,
        version: int,
        values: Mapping[str, Any],
        errors: list[int] | None = None,
    ) -> Steps[Buffers]:
        """Encode a whole response frame in steps, its length included.

        Its error codes other than NONE are added to `errors`.
        """
        writer = TableWriter(version, is_flexible=self.is_flexible(version), errors=errors)
        writer.out += INT32.pack(correlation_id)
        if writer.is_flexible:
            writer.out += b"\x00"  # the header's tagged fields
        yield from self.response.write_steps(writer, values)
        return framed([writer.out])

    def encode_request(
        self, correlation_id: int, version: int, client_id: str, values: Mapping[str, Any]
    ) -> bytes:
        """Return a whole request frame, its length included."""
        writer = TableWriter(version, is_flexible=self.is_flexible(version))
        header = request_header(self.api_key, version, correlation_id, client_id)
        writer.out += header if writer.is_flexible else header[:-1]
        self.request.write(writer, values)
        return INT32.pack(len(writer.out)) + bytes(writer.out)

    def decode_response(
        self, frame: bytes | bytearray | memoryview, version: int
    ) -> tuple[int, Values]:
        """Return (correlation id, values) of a response frame without its length.

        Raises MalformedFrame.
        """
        reader = TableReader(
            frame,
            version,
            is_flexible=self.is_flexible(version),
            most_elements=MAX_ELEMENTS_OF_PEERS,
        )
        correlation_id = reader.int32()
        if reader.is_flexible:
            reader.tagged_fields()
        found = self.response.read(reader)
        reader.expect_end()
        return correlation_id, found


def topic_array(*partition_fields: Field, first_with_id: int | None = None) -> ArrayOf:
    """Return the kind that most requests use: topics, each with `partitions` of these fields.

    From version `first_with_id` on topics have ids and no names.
    """
    partitions = Field("partitions", ArrayOf(Struct(*partition_fields)))
    return ArrayOf(Struct(*topic_fields(first_with_id), partitions))


def topic_fields(first_with_id: int | None) -> tuple[Field, ...]:
    if first_with_id is None:
        return (Field("topic", STRING),)
    return (
        Field("topic", STRING, until=first_with_id - 1, default=""),
        Field("topic_id", TOPIC_ID, since=first_with_id, default=ZERO_TOPIC_ID),
    )


def each_partition(
    topics: Sequence[Values],
    made_of: Callable[[str, Values], Values],
    steps_of: Callable[[Values], int] | None = None,
) -> Each[Any]:
    """Return a response in the shape of `topics`, whose partitions are made when written.

    `made_of` gets the topic and the partition's values of the request.
    """

    def responded(topic: Values) -> Values:
        made_of_one = partial(made_of, topic["topic"])
        partitions: Each[Values] = Each(topic["partitions"], made_of_one, steps_of)
        return {"topic": topic["topic"], "partitions": partitions}

    return Each(topics, responded)
