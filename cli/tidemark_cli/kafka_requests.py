"""Send the few Kafka requests for groups that HTTP lacks: deletion, commits, offsets by time.

Commits are those of groups without members. The versions are old ones, whose fields are plain;
Kafka's message definitions say what the fields mean. Everything read is bounded.
"""

import asyncio
import struct
from collections.abc import Mapping, Sequence

from tidemark_client.cluster_status import KafkaAddress
from tidemark_client.trust import context_for
from tidemark_protocol.error_codes import ErrorCode

FIND_COORDINATOR, DELETE_GROUPS, OFFSET_COMMIT, LIST_OFFSETS = 10, 42, 8, 2
VERSIONS = {FIND_COORDINATOR: 0, DELETE_GROUPS: 0, OFFSET_COMMIT: 2, LIST_OFFSETS: 1}
CLIENT_ID = "tidemark-cli"
MAX_RESPONSE_BYTES = 16 * 1024 * 1024
RESPONSE_SECONDS = 10.0
NO_GENERATION, NO_RETENTION = -1, -1

Place = tuple[str, int]


class KafkaFailed(Exception):
    """Report a failed request; `code` is NONE if no broker returned an error."""

    def __init__(self, sentence: str, code: ErrorCode = ErrorCode.NONE) -> None:
        super().__init__(sentence)
        self.code = code


class Reader:
    """Raises KafkaFailed where an answer ends too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        size = struct.calcsize(f">{form}")
        return int(struct.unpack(f">{form}", self._take(size))[0])

    def text(self) -> str:
        size = self.number("h")
        return self._take(size).decode(errors="replace") if size > 0 else ""

    def count(self) -> int:
        found = self.number("i")
        if found > len(self._data):
            raise KafkaFailed(f"expected a list that fits its answer, found {found} entries")
        return max(0, found)

    def error(self) -> ErrorCode:
        number = self.number("h")
        try:
            return ErrorCode(number)
        except ValueError:
            return ErrorCode.UNKNOWN_SERVER_ERROR

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise KafkaFailed(f"expected {size} more bytes of an answer, found its end")
        taken = self._data[self._at : end]
        self._at = end
        return taken


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def listing(entries: Sequence[bytes]) -> bytes:
    return struct.pack(">i", len(entries)) + b"".join(entries)


def by_topic(entries: Mapping[Place, bytes]) -> bytes:
    """Encode the nested lists of topics and partitions; an entry begins with its partition."""
    topics: dict[str, list[bytes]] = {}
    for (topic, partition), rest in sorted(entries.items()):
        topics.setdefault(topic, []).append(struct.pack(">i", partition) + rest)
    return listing([text(topic) + listing(rows) for topic, rows in topics.items()])


async def exchange(address: KafkaAddress, api_key: int, body: bytes) -> Reader:
    """Send one request on a connection of its own and return the response's reader.

    Raises KafkaFailed.
    """
    head = struct.pack(">hhi", api_key, VERSIONS[api_key], 1) + text(CLIENT_ID)
    host, port, is_tls = address
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(RESPONSE_SECONDS):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=context_for(host) if is_tls else None
            )
            writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            if not 4 <= size <= MAX_RESPONSE_BYTES:
                raise KafkaFailed(f"expected an answer of {host}:{port}, found {size} bytes")
            return Reader((await reader.readexactly(size))[4:])
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        raise KafkaFailed(f"{host}:{port}: {error or type(error).__name__}") from error
    finally:
        if writer is not None:
            writer.close()


async def find_coordinator(address: KafkaAddress, group: str) -> KafkaAddress:
    response = await exchange(address, FIND_COORDINATOR, text(group))
    _check(response.error(), f"no coordinator of group {group} found")
    response.number("i")  # its id
    return KafkaAddress(response.text(), response.number("i"), address.is_tls)


async def delete_group(coordinator: KafkaAddress, group: str) -> None:
    response = await exchange(coordinator, DELETE_GROUPS, listing([text(group)]))
    response.number("i")  # throttle time
    for _ in range(response.count()):
        response.text()
        _check(response.error(), f"group {group} was not deleted")


async def commit(coordinator: KafkaAddress, group: str, offsets: Mapping[Place, int]) -> None:
    """Commit offsets for a group without members."""
    entries = {place: struct.pack(">q", offset) + text("") for place, offset in offsets.items()}
    head = text(group) + struct.pack(">i", NO_GENERATION) + text("")
    body = head + struct.pack(">q", NO_RETENTION) + by_topic(entries)
    response = await exchange(coordinator, OFFSET_COMMIT, body)
    for _ in range(response.count()):
        topic = response.text()
        for _ in range(response.count()):
            partition = response.number("i")
            _check(response.error(), f"offset of {topic}-{partition} was not committed")


async def offset_at(leader: KafkaAddress, place: Place, timestamp_ms: int) -> int:
    """Return the offset of the first record at or after a time; -1 if there is none."""
    body = struct.pack(">i", -1) + by_topic({place: struct.pack(">q", timestamp_ms)})
    response = await exchange(leader, LIST_OFFSETS, body)
    for _ in range(response.count()):
        topic = response.text()
        for _ in range(response.count()):
            partition = response.number("i")
            _check(response.error(), f"{topic}-{partition} has no offset by time")
            response.number("q")  # the record's own time
            return response.number("q")
    raise KafkaFailed(f"expected an offset of {place[0]}-{place[1]}, found none")


def _check(code: ErrorCode, sentence: str) -> None:
    if code is not ErrorCode.NONE:
        raise KafkaFailed(f"{sentence}: {code.name}", code)
