"""The file of users of local mode."""

import asyncio
import json
import stat
from pathlib import Path

from tidemark_operator.security.local_users import (
    FIRST_USERS,
    LocalUsers,
    create_users,
    new_token,
    read_users,
)
from tidemark_operator.security.token_review import unverified_claims

POOL = "default/default"


def test_users_are_created_once_and_only_their_owner_may_read_them(tmp_path: Path) -> None:
    first = create_users(tmp_path)
    assert tuple(user.name for user in first) == FIRST_USERS
    assert create_users(tmp_path) == first == read_users(tmp_path / "users.json")
    files = [tmp_path / "users.json", *(tmp_path / "tokens").iterdir()]
    assert len(files) == 1 + len(FIRST_USERS)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "tokens").stat().st_mode) == 0o700


def test_a_token_of_a_file_is_its_users(tmp_path: Path) -> None:
    create_users(tmp_path)
    users = LocalUsers(tmp_path)

    async def scenario() -> None:
        token = (tmp_path / "tokens" / "producer").read_text()
        review = await users.review_token(POOL, token, source="")
        assert review.principal is not None
        assert review.principal.name == "tidemark:user:producer"
        assert (await users.review_token(POOL, token + "x", source="")).principal is None
        assert (await users.review_token(POOL, "", source="")).principal is None

    asyncio.run(scenario())


def test_a_change_of_the_file_counts_at_once_and_a_broken_file_has_no_users(tmp_path: Path) -> None:
    users, path = LocalUsers(tmp_path), tmp_path / "users.json"

    async def names() -> list[str]:
        found = [await users.find_user(POOL, name) for name in ("a", "b")]
        return [each.principal.name for each in found if each is not None]

    async def scenario() -> None:
        assert await names() == []
        path.write_text(json.dumps({"users": [{"name": "a", "password": "p"}, {"name": "b"}]}))
        assert await names() == ["tidemark:user:a"], "b has no password"
        path.write_text("{")
        assert await names() == []

    asyncio.run(scenario())


def test_no_user_is_written_outside_of_the_directory(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (data_dir / "users.json").write_text('{"users": [{"name": "../../x", "token": "t"}]}')
    create_users(data_dir)
    assert not list(tmp_path.glob("x")) and not list((data_dir / "tokens").iterdir())


def test_a_token_has_the_claims_that_clients_read() -> None:
    claims = unverified_claims(new_token("admin", lifetime_s=60))
    assert claims is not None
    assert claims["sub"] == "tidemark:user:admin"
    assert claims["exp"] - claims["iat"] == 60
    assert new_token("admin") != new_token("admin")
