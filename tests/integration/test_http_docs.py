"""The curl lines of docs/user/http.md, run as they stand against real brokers.

Every command has to succeed; where a line `# {...}` or `# [...]` follows, the answer looks like it.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_cluster import running

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).parents[2] / "docs" / "user" / "http.md"
MARK = "@@ end of a command"
# What curl says on its own is progress; what matters is whether it succeeded.
PRELUDE = 'set -e\ncurl() { command curl --silent --show-error --fail-with-body "$@"; }\n'


def commands_of(page: str) -> list[tuple[str, str]]:
    """(command, the answer written below it) in the order of the page."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith(("# {", "# [")):
                found[-1] = (found[-1][0], line[2:])
            elif line and not line.startswith("#"):
                found.append((line, ""))
    return found


def shape_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: shape_of(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shape_of(each) for each in value]
    return type(value).__name__


def test_the_curl_lines_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    commands = commands_of(PAGE.read_text())
    assert len(commands) > 15
    assert any("/consumers/" in command for command, _ in commands)
    script = PRELUDE + "".join(f"{command}\necho '\n{MARK}'\n" for command, _ in commands)
    with running(tmp_path / "cluster") as cluster:
        cluster.wait_until_in_sync()
        ended = subprocess.run(
            ["bash", "-c", script],
            env={**os.environ, "B": cluster.broker_url(0)},
            cwd=tmp_path,
            capture_output=True,
            timeout=90,
        )
    *responses, rest = ended.stdout.decode(errors="replace").split(MARK)
    failed = commands[len(responses)][0] if len(responses) < len(commands) else ""
    assert (ended.returncode, failed) == (0, ""), (rest, ended.stderr)
    for (command, expected), response in zip(commands, responses, strict=True):
        if expected:
            assert shape_of(json.loads(response)) == shape_of(json.loads(expected)), command


def test_the_page_says_what_an_answer_looks_like() -> None:
    commands = commands_of('```sh\nB=x\ncurl \\\n  a  # why\n# {"b": 1}\n# a remark\n```')
    assert commands == [("B=x", ""), ("curl    a  # why", '{"b": 1}')]
