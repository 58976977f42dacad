"""A token's file is read again when it was rotated, and after a rejection."""

from pathlib import Path

from tidemark_protocol import token_file
from tidemark_protocol.token_file import TokenFile


def test_a_rotated_token_is_used_within_a_minute_and_after_a_rejection(tmp_path: Path) -> None:
    now_s = 0.0
    path = tmp_path / "token"
    path.write_text("first\n")
    tokens = TokenFile(path, monotonic_s=lambda: now_s)
    assert tokens.headers() == {"Authorization": "Bearer first"}
    path.write_text("second")
    assert tokens.token() == "first"
    now_s = token_file.REREAD_SECONDS
    assert tokens.token() == "second"
    path.write_text("third")
    tokens.expire()
    assert tokens.token() == "third"


def test_a_file_that_is_away_leaves_the_token_and_is_tried_again(tmp_path: Path) -> None:
    now_s = 0.0
    path = tmp_path / "token"
    tokens = TokenFile(path, monotonic_s=lambda: now_s)
    assert tokens.headers() == {}
    path.write_text("first")
    now_s = 1.0
    assert tokens.token() == "first"
    path.write_bytes(b"\xff\xff")
    now_s += token_file.REREAD_SECONDS
    assert tokens.token() == "first"
    path.unlink()
    now_s += 1.0
    assert tokens.token() == "first"


def test_without_a_file_there_is_no_token() -> None:
    assert TokenFile(None).headers() == {}
