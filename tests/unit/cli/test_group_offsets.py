"""Where offsets of groups are set to, and the requests of Kafka's protocol that set them."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from tidemark_cli.group_offsets import Goal, OffsetChange, changes, read_goal
from tidemark_cli.kafka_requests import (
    DELETE_GROUPS,
    FIND_COORDINATOR,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    KafkaFailed,
    commit,
    delete_group,
    exchange,
    find_coordinator,
    listing,
    offset_at,
    text,
)
from tidemark_client.cluster_status import KafkaAddress
from tidemark_client.errors import CommandFailed
from tidemark_client.outcomes import OffsetRange
from tidemark_protocol.error_codes import ErrorCode

Response = TypeVar("Response")
ORDERS = ("orders", 0)
NOW_MS = 10 * 86_400_000


@pytest.mark.parametrize(
    ("word", "goal"),
    [
        ("earliest", Goal(word="earliest")),
        ("latest", Goal(word="latest")),
        ("17", Goal(offset=17)),
        ("1970-01-01T00:00:02Z", Goal(time_ms=2000)),
        ("1970-01-01T01:00:00+01:00", Goal(time_ms=0)),
        ("1970-01-02", Goal(time_ms=86_400_000)),
        ("-1d", Goal(time_ms=9 * 86_400_000)),
        ("@1700000000000", Goal(time_ms=1_700_000_000_000)),
    ],
)
def test_goals_are_words_offsets_and_times(word: str, goal: Goal) -> None:
    assert read_goal(word, NOW_MS) == goal


@pytest.mark.parametrize("word", ["soon", "-1", "1.5", ""])
def test_strange_goal_is_refused(word: str) -> None:
    with pytest.raises(CommandFailed, match="--to earliest, latest"):
        read_goal(word, NOW_MS)


@pytest.mark.parametrize(
    ("goal", "at_time", "after"),
    [
        (Goal(word="earliest"), -1, 10),
        (Goal(word="latest"), -1, 20),
        (Goal(offset=15), -1, 15),
        (Goal(offset=3), -1, 10),
        (Goal(offset=99), -1, 20),
        (Goal(time_ms=5), 12, 12),
        (Goal(time_ms=5), -1, 20),
    ],
)
def test_offset_stays_in_what_the_log_has(goal: Goal, at_time: int, after: int) -> None:
    ranges = {ORDERS: OffsetRange(10, 20)}
    found = changes([ORDERS], {ORDERS: 11}, ranges, goal, {ORDERS: at_time})
    assert found == [OffsetChange("orders", 0, 11, after)]


def test_first_commit_has_nothing_before_it() -> None:
    ranges = {ORDERS: OffsetRange(10, 20)}
    (change,) = changes([ORDERS], {}, ranges, Goal(word="latest"), {})
    assert change.before is None


def requested(
    answer: bytes, ask: Callable[[KafkaAddress], Awaitable[Response]]
) -> tuple[tuple[int, int], bytes, Response]:
    """(api key and version, body, what `ask` returned) of one request that is answered so."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        seen.append(await reader.readexactly(size))
        writer.write(struct.pack(">ii", 4 + len(answer), 1) + answer)
        await writer.drain()
        writer.close()

    async def experiment() -> Response:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            return await ask(KafkaAddress(*server.sockets[0].getsockname()[:2]))

    returned = asyncio.run(asyncio.wait_for(experiment(), 5))
    key, version = struct.unpack(">hh", seen[0][:4])
    return (key, version), seen[0][8 + 2 + len("tidemark-cli") :], returned


def error(code: ErrorCode) -> bytes:
    return struct.pack(">h", code)


def test_coordinator_is_found() -> None:
    response = error(ErrorCode.NONE) + struct.pack(">i", 2) + text("b2") + struct.pack(">i", 9092)
    head, body, found = requested(response, lambda at: find_coordinator(at, "g"))
    assert head == (FIND_COORDINATOR, 0)
    assert (body, found) == (text("g"), KafkaAddress("b2", 9092))


def test_group_is_deleted_or_the_broker_says_why() -> None:
    response = struct.pack(">i", 0) + listing([text("g") + error(ErrorCode.NONE)])
    head, body, _ = requested(response, lambda at: delete_group(at, "g"))
    assert (head, body) == ((DELETE_GROUPS, 0), listing([text("g")]))
    response = struct.pack(">i", 0) + listing([text("g") + error(ErrorCode.NON_EMPTY_GROUP)])
    with pytest.raises(KafkaFailed, match="group g was not deleted: NON_EMPTY_GROUP"):
        requested(response, lambda at: delete_group(at, "g"))


def test_offsets_are_committed_for_a_group_without_members() -> None:
    rows = [struct.pack(">i", number) + error(ErrorCode.NONE) for number in (0, 1)]
    response = listing([text("orders") + listing(rows)])
    wanted = {("orders", 1): 7, ("orders", 0): 5}
    head, body, _ = requested(response, lambda at: commit(at, "g", wanted))
    sent = [struct.pack(">iq", number, offset) + text("") for number, offset in ((0, 5), (1, 7))]
    expected = text("g") + struct.pack(">i", -1) + text("") + struct.pack(">q", -1)
    assert head == (OFFSET_COMMIT, 2)
    assert body == expected + listing([text("orders") + listing(sent)])
    rows[1] = struct.pack(">i", 1) + error(ErrorCode.UNKNOWN_MEMBER_ID)
    response = listing([text("orders") + listing(rows)])
    with pytest.raises(KafkaFailed, match="orders-1 was not committed: UNKNOWN_MEMBER_ID"):
        requested(response, lambda at: commit(at, "g", wanted))


def test_offset_by_time_is_read() -> None:
    row = struct.pack(">i", 0) + error(ErrorCode.NONE) + struct.pack(">qq", 1000, 42)
    response = listing([text("orders") + listing([row])])
    head, body, found = requested(response, lambda at: offset_at(at, ORDERS, 900))
    sent = listing([struct.pack(">iq", 0, 900)])
    assert (head, found) == ((LIST_OFFSETS, 1), 42)
    assert body == struct.pack(">i", -1) + listing([text("orders") + sent])


@pytest.mark.parametrize("answer", [b"", b"\0", struct.pack(">ii", 0, 2**31 - 1), b"\0" * 7])
def test_strange_answer_is_an_error_with_bounded_work(answer: bytes) -> None:
    with pytest.raises(KafkaFailed):
        requested(answer, lambda at: offset_at(at, ORDERS, 1))


def test_broker_that_is_not_there_is_told_with_its_address() -> None:
    with pytest.raises(KafkaFailed, match=r"127\.0\.0\.1:1: "):
        asyncio.run(exchange(KafkaAddress("127.0.0.1", 1), DELETE_GROUPS, b""))
