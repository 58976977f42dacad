"""A client that leaves while it sends the body of a FastAPI route leaves no traceback."""

import asyncio
import logging

import pytest

from tests.unit.broker.http.fake_broker import fake_broker


def test_client_that_leaves_during_a_body_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        broker = fake_broker()
        inbox = [{"type": "http.request", "body": b'{"pro', "more_body": True}]

        async def receive() -> dict[str, object]:
            return inbox.pop(0) if inbox else {"type": "http.disconnect"}

        async def send(message: object) -> None:
            """No client reads it."""

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/producers",
            "raw_path": b"/producers",
            "root_path": "",
            "query_string": b"",
            "headers": [(b"content-length", b"40")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8080),
            "state": {},
        }
        await broker.client.app(scope, receive, send)

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert caplog.records == []
