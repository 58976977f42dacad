"""Lines of the log: what a client named ends no line and moves no cursor."""

import json

import pytest
from tidemark_protocol.log_text import escape_line


@pytest.mark.parametrize("code", [0x7F, 0x85, 0x9B, 0x200E, 0x2028, 0x2029, 0x202E, 0x2066])
def test_characters_that_act_are_escaped_and_mean_the_same(code: int) -> None:
    line = json.dumps({"topic": f"a{chr(code)}b"}, ensure_ascii=False)
    escaped = escape_line(line)
    assert chr(code) not in escaped and len(escaped.splitlines()) == 1
    assert json.loads(escaped) == json.loads(line)


def test_other_text_is_as_it_was() -> None:
    assert escape_line('{"topic": "größe"}') == '{"topic": "größe"}'
