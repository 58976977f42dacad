"""Names and values of others do no harm to a terminal, whichever way they are shown."""

import json

import pytest
from tidemark_cli.output import Output, table
from tidemark_client.errors import CommandFailed

EVIL = "a\x1b[2J\r\x9b1m\u202eb\nc"
SHOWN = r"a\x1b[2J\r\u009b1m\u202eb"


def test_a_table_shows_a_cell_on_its_line() -> None:
    assert table(("name",), [(EVIL,)]).plain == f"NAME\n{SHOWN}\\nc"


def test_a_failure_shows_what_it_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    failed = CommandFailed(expected="x", found=EVIL, to_do="two\nlines")
    Output(is_json=False).failure(failed)
    written = capsys.readouterr().err
    assert f"{SHOWN}\nc" in written
    assert "two\nlines" in written


def test_json_is_the_same_json(capsys: pytest.CaptureFixture[str]) -> None:
    Output(is_json=True).result({"name": EVIL}, lambda console: None)
    written = capsys.readouterr().out
    assert json.loads(written) == {"name": EVIL}
    assert written == '{"name":"a\\u001b[2J\\r\\u009b1m\\u202eb\\nc"}\n'
