"""The user's token for a controller of local mode goes to that user's controller only."""

import asyncio
import os
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tidemark_client import local_secret
from tidemark_client.errors import CommandFailed
from tidemark_client.local_secret import LOCAL_PATH, person_headers
from tidemark_protocol.local_tokens import person_token

SECRET = "s" * 64


def headers_for(secret_file: Path | None, status: int = 200) -> dict[str, str]:
    async def asked() -> dict[str, str]:
        async def local(_: web.Request) -> web.Response:
            named = {} if secret_file is None else {"secretFile": str(secret_file)}
            return web.json_response({"uptimeMs": 1} | named, status=status)

        app = web.Application()
        app.router.add_get(LOCAL_PATH, local)
        async with TestServer(app) as server:
            return await person_headers(f"http://127.0.0.1:{server.port}")

    return asyncio.run(asyncio.wait_for(asked(), 20))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "controller.secret"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    return path


def test_the_token_is_made_of_the_secret_which_is_not_sent(secret: Path) -> None:
    token = person_token(SECRET.encode())
    assert headers_for(secret) == {"Authorization": f"Bearer {token}"}
    assert SECRET not in token


def test_a_controller_that_wants_no_token_gets_none(secret: Path) -> None:
    assert headers_for(None) == {}
    assert headers_for(secret, status=404) == {}


def test_only_a_secret_of_this_user_is_read(secret: Path, tmp_path: Path) -> None:
    secret.chmod(0o640)
    with pytest.raises(CommandFailed, match="another user only"):
        headers_for(secret)
    secret.chmod(0o600)
    other = tmp_path / "id_ed25519"
    secret.rename(other)
    for path in (other, secret):
        with pytest.raises(CommandFailed, match="another user only"):
            headers_for(path)


def test_another_users_listener_gets_no_token(
    secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = local_secret.SOCKET_TABLES[0].read_text()
    listens = "  0: 0100007F:{port:04X} 00000000:0000 0A 0:0 00:0 0 {user} 0 1\n"
    table = tmp_path / "tcp"
    assert "local_address" in real
    for user, is_accepted in ((os.getuid(), True), (0, True), (54321, False)):
        lines = "".join(listens.format(port=port, user=user) for port in range(1024, 65536))
        table.write_text("  sl  local_address\n" + lines)
        monkeypatch.setattr(local_secret, "SOCKET_TABLES", (table,))
        if is_accepted:
            assert headers_for(secret)
            continue
        with pytest.raises(CommandFailed) as caught:
            headers_for(secret)
        assert "another user's process (uid 54321)" in str(caught.value.found)
