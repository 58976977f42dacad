"""Send the few Kafka requests for groups that HTTP lacks: deletion, commits, offsets by time.

Commits are those of groups without members. The versions are old ones, whose fields are plain;
Kafka's message definitions say what the fields mean. Everything read is bounded.
"""

import asyncio
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark_client.cluster_status import KafkaAddress
from tidemark_client.credentials import TOKEN_FILE, read_token
from tidemark_client.trust import context_for
from tidemark_protocol.error_codes import ErrorCode

FIND_COORDINATOR, DELETE_GROUPS, OFFSET_COMMIT, LIST_OFFSETS = 10, 42, 8, 2
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
VERSIONS = {
    FIND_COORDINATOR: 0,
    DELETE_GROUPS: 0,
    OFFSET_COMMIT: 2,
    LIST_OFFSETS: 1,
    SASL_HANDSHAKE: 1,
    SASL_AUTHENTICATE: 0,
}
CLIENT_ID = "tidemark-cli"
MAX_RESPONSE_BYTES = 16 * 1024 * 1024
RESPONSE_SECONDS = 10.0
NO_GENERATION, NO_RETENTION = -1, -1

DENIALS = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Needed:
    """The access that a request needs: brokers do not say it over Kafka."""

    verb: str
    resource: str
    name: str

    @property
    def sentence(self) -> str:
        name = json.dumps(self.name)
        return (
            f"the client may not {self.verb} {self.resource}.tidemark.dev/{self.name}: bind a Role"
            f" with this rule: {{apiGroups: [tidemark.dev], resources: [{self.resource}],"
            f" resourceNames: [{name}], verbs: [{self.verb}]}}"
        )


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


@dataclass(frozen=True, slots=True)
class _Connection:
    name: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def exchange(self, api_key: int, body: bytes) -> Reader:
        head = struct.pack(">hhi", api_key, VERSIONS[api_key], 1) + text(CLIENT_ID)
        self.writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            raise KafkaFailed(f"expected an answer of {self.name}, found {size} bytes")
        return Reader((await self.reader.readexactly(size))[4:])


async def _authenticate(connection: _Connection, token: str) -> None:
    """Authenticate by OAUTHBEARER (RFC 7628), unless the listener asks for no authentication."""
    code = (await connection.exchange(SASL_HANDSHAKE, text("OAUTHBEARER"))).error()
    if code is ErrorCode.ILLEGAL_SASL_STATE:
        return
    _check(code, f"{connection.name} does not accept tokens")
    first = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    response = await connection.exchange(SASL_AUTHENTICATE, struct.pack(">i", len(first)) + first)
    code, reason = response.error(), response.text()
    _check(code, f"{connection.name} did not accept the token{f' ({reason})' if reason else ''}")


async def exchange(address: KafkaAddress, api_key: int, body: bytes) -> Reader:
    """Send one request on a connection of its own and return the response's reader.

    Raises KafkaFailed.
    """
    host, port, is_tls = address
    token = read_token()
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(RESPONSE_SECONDS):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=context_for(host) if is_tls else None
            )
            connection = _Connection(f"{host}:{port}", reader, writer)
            if token:
                await _authenticate(connection, token)
            return await connection.exchange(api_key, body)
    except asyncio.IncompleteReadError as error:
        # What a listener with authentication does to a client without a token.
        hint = "" if token else f"; if it needs a token: --token-file, or {TOKEN_FILE}"
        raise KafkaFailed(f"{host}:{port} closed the connection{hint}") from error
    except (OSError, TimeoutError) as error:
        raise KafkaFailed(f"{host}:{port}: {str(error) or type(error).__name__}") from error
    finally:
        if writer is not None:
            writer.close()


async def find_coordinator(address: KafkaAddress, group: str) -> KafkaAddress:
    response = await exchange(address, FIND_COORDINATOR, text(group))
    needed = Needed("describe", "consumergroups", group)
    _check(response.error(), f"no coordinator of group {group} found", needed)
    response.number("i")  # its id
    return KafkaAddress(response.text(), response.number("i"), address.is_tls)


async def delete_group(coordinator: KafkaAddress, group: str) -> None:
    response = await exchange(coordinator, DELETE_GROUPS, listing([text(group)]))
    response.number("i")  # throttle time
    for _ in range(response.count()):
        response.text()
        needed = Needed("delete", "consumergroups", group)
        _check(response.error(), f"group {group} was not deleted", needed)


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
            code, needed = response.error(), Needed("consume", "consumergroups", group)
            if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                needed = Needed("consume", "topics", topic)
            _check(code, f"offset of {topic}-{partition} was not committed", needed)


async def offset_at(leader: KafkaAddress, place: Place, timestamp_ms: int) -> int:
    """Return the offset of the first record at or after a time; -1 if there is none."""
    body = struct.pack(">i", -1) + by_topic({place: struct.pack(">q", timestamp_ms)})
    response = await exchange(leader, LIST_OFFSETS, body)
    for _ in range(response.count()):
        topic = response.text()
        for _ in range(response.count()):
            partition = response.number("i")
            needed = Needed("describe", "topics", topic)
            _check(response.error(), f"{topic}-{partition} has no offset by time", needed)
            response.number("q")  # the record's own time
            return response.number("q")
    raise KafkaFailed(f"expected an offset of {place[0]}-{place[1]}, found none")


def _check(code: ErrorCode, sentence: str, needed: Needed | None = None) -> None:
    if code in DENIALS and needed is not None:
        raise KafkaFailed(f"{sentence}: {code.name}: {needed.sentence}", code)
    if code is not ErrorCode.NONE:
        raise KafkaFailed(f"{sentence}: {code.name}", code)
