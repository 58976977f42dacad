"""Check the pages: links, rows of decisions, the generated reference, commands in `sh` blocks."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tidemark_cli.arguments import parse

ROOT = Path(__file__).parents[2]
PAGES = sorted({ROOT / "README.md", *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")})
LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
TARGETS = frozenset(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_every_link_leads_to_a_file() -> None:
    broken = []
    for page in PAGES:
        for link in LINK.findall(page.read_text()):
            path = link.partition("#")[0]
            if path and not re.match(r"[a-z]+:", path) and not (page.parent / path).exists():
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def test_every_decision_has_a_row() -> None:
    folder = ROOT / "docs" / "decisions"
    linked = set(LINK.findall((folder / "README.md").read_text()))
    assert {page.name for page in folder.glob("0*.md")} - linked == set()


def test_the_reference_is_as_it_is_generated() -> None:
    check = subprocess.run(
        [sys.executable, "hack/docs.py", "--check"],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 0, check.stderr


def commands() -> list[tuple[str, list[str]]]:
    """Return each `tidemark` and `make` command of the `sh` blocks, with its page."""
    found = []
    for page in PAGES:
        for block in BLOCK.findall(page.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                for words in split(line):
                    found.append((str(page.relative_to(ROOT)), words))
    return found


def split(line: str) -> list[list[str]]:
    """Return the commands of a line that are checked, without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("|&;"):
            parts.append([])
        else:
            parts[-1].append(word)
    kept = []
    for words in parts:
        ends = [number for number, word in enumerate(words) if set(word) <= set("<>")]
        words = words[: ends[0]] if ends else words
        if words and Path(words[0]).name in {"tidemark", "make"}:
            kept.append(words)
    return kept


@pytest.mark.parametrize(("page", "words"), commands(), ids=lambda value: str(value))
def test_a_command_of_the_docs_is_understood(page: str, words: list[str]) -> None:
    if words[0] == "make":
        targets = [word for word in words[1:] if "=" not in word]
        assert set(targets) <= TARGETS, page
    else:
        parse(words[1:])


def test_the_paths_of_the_source_tree_exist() -> None:
    table = (ROOT / "docs/design/architecture.md").read_text().partition("## Source tree")[2]
    paths = re.findall(r"`([^`]+)`", "".join(re.findall(r"^\|.*\|$", table, re.MULTILINE)))
    assert len(paths) > 30
    assert [path for path in paths if not (ROOT / path).exists()] == []
