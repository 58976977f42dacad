"""Plain HTTP requests: what an answer is, and what a failure says of the request."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tidemark_client.http_session import HttpSession, NotConnected, TimeLimits, TruncatedResponse

from tests.support.waiting import HANG_SECONDS

SOON = TimeLimits(HANG_SECONDS, HANG_SECONDS)
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Name: v\r\n\r\nhello"


@dataclass
class Server:
    """Answers each request with the next of `answers`; b"" closes the connection instead."""

    answers: list[bytes]
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head)
                response = self.answers.pop(0)
                writer.write(response)
                if not response or b"close" in response:
                    break
        except (EOFError, OSError, IndexError):
            pass
        writer.close()


def run(
    answers: list[bytes],
    story: Callable[[Server, HttpSession], Awaitable[None]],
    *,
    repeats_gets: bool = True,
) -> Server:
    async def main() -> Server:
        server, session = Server(answers), HttpSession(repeats_gets=repeats_gets)
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        try:
            await story(server, session)
        finally:
            await session.close()
            listening.close()
        return server

    return asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))


def test_an_answer_has_status_headers_and_body() -> None:
    async def story(server: Server, session: HttpSession) -> None:
        found = await session.get(server.url, SOON)
        assert (found.status, found.headers["x-name"], found.body) == (200, "v", b"hello")
        assert (await session.post(server.url, SOON, body=b"x")).status == 204
        assert (await session.delete(server.url, SOON)).body == b""

    empty = b"HTTP/1.1 204 No Content\r\n\r\n"
    run([HELLO, empty, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"], story)


def test_a_get_on_a_connection_that_was_closed_is_sent_again() -> None:
    async def story(server: Server, session: HttpSession) -> None:
        await session.get(server.url, SOON)
        assert (await session.get(server.url, SOON)).body == b"hello"

    server = run([HELLO, b"", HELLO], story)
    assert (server.connections, len(server.requests)) == (2, 3)


def test_a_get_that_is_not_repeatable_is_sent_once() -> None:
    async def story(server: Server, session: HttpSession) -> None:
        await session.get(server.url, SOON)
        with pytest.raises(TruncatedResponse):
            await session.get(server.url, SOON)

    assert len(run([HELLO, b"", HELLO], story, repeats_gets=False).requests) == 2


def test_a_post_is_sent_once_whatever_becomes_of_it() -> None:
    async def story(server: Server, session: HttpSession) -> None:
        await session.get(server.url, SOON)
        with pytest.raises(TruncatedResponse):
            await session.post(server.url, SOON, body=b"x")

    assert len(run([HELLO, b"", HELLO], story).requests) == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"SMTP ready\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n12345678901",
    ],
)
def test_what_is_no_whole_answer_is_broken_off(answer: bytes) -> None:
    async def story(server: Server, session: HttpSession) -> None:
        with pytest.raises(TruncatedResponse):
            await session.get(server.url, SOON, most_bytes=10)

    assert len(run([answer], story).requests) == 1


def test_a_refused_connection_is_certain() -> None:
    async def story(server: Server, session: HttpSession) -> None:
        for url in ("http://127.0.0.1:1", "http://127.0.0.1:99999", "http://[::1", "http://", "x"):
            with pytest.raises(NotConnected):
                await session.post(url, SOON, body=b"x")

    run([], story)


def test_an_answer_that_came_too_late_is_not_the_next_ones() -> None:
    async def story(server: Server, session: HttpSession) -> None:
        await session.get(server.url, SOON)
        with pytest.raises(TimeoutError):
            await session.get(server.url, TimeLimits(0.02))
        assert (await session.get(server.url, SOON)).body == b"hello"

    half = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    assert run([HELLO, half, HELLO], story).connections == 2


def test_only_requests_to_brokers_carry_the_token_and_it_is_read_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    monkeypatch.setenv("TIDEMARK_TOKEN_FILE", str(file))
    empty = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"

    async def story(server: Server, session: HttpSession) -> None:
        to_brokers = HttpSession(authenticates=True)
        await session.get(server.url, SOON)
        for token in ("one\n", "two"):
            file.write_text(token)
            await to_brokers.get(server.url, SOON)
        await to_brokers.close()

    to_other, *to_brokers = run([empty] * 3, story).requests
    assert b"uthorization" not in to_other
    assert [b"Bearer one\r" in to_brokers[0], b"Bearer two\r" in to_brokers[1]] == [True, True]
