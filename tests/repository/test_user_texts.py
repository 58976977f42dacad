"""Texts that users read use the words of docs/design/glossary.md.

Read are: string literals with more than one word in the product's Python (except log fields, names
and docstrings), texts of CRDs and charts, and the prose of docs/user, docs/operations and
docs/runbooks.
"""

import ast
import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = "docs/design/glossary.md"
PRODUCT = ("audit", "broker_image", "chaos", "cli", "client", "operator", "protocol")
BROKER = "broker_image"
PROSE = ("docs/user", "docs/operations", "docs/runbooks")
YAML_TEXTS = ("crds", "charts/tidemark/rules", "charts/tidemark/dashboards")
# A text of one of these keys: a folded block may follow.
TEXT_KEY = re.compile(r'^( *)(?:- )?"?(?:description|message|summary|title)"?: *(.*)$')
# A number of a safety rule, an invariant or a liveness promise is for developers.
RULE_NUMBER = re.compile(r"\b[SIL]\d{1,2}\b")
INLINE_CODE = re.compile(r"`[^`]*`|\]\([^)]*\)|https?://\S+")


@cache
def replaced_words() -> dict[str, str]:
    """Return the words that are not used, each with the words to use instead."""
    _, table = (ROOT / GLOSSARY).read_text().split("## Replaced words")
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {word.strip(): use for words, use in rows[1:] for word in words.split(",")}


@cache
def any_word() -> re.Pattern[str]:
    """Return what finds all of them at once; the longest words come first."""
    words = sorted(replaced_words(), key=len, reverse=True)
    forms = "|".join(
        re.escape(word).replace(r"\*", r"\w*").replace(r"\ ", r"\s+") for word in words
    )
    return re.compile(rf"\b(?:{forms})\b", re.IGNORECASE)


def instead_of(found: str) -> str:
    """Return the word to use instead of a form that `any_word` found."""
    form = " ".join(found.lower().split())
    for word, use in replaced_words().items():
        if form == word or (word.endswith("*") and form.startswith(word[:-1])):
            return use
    raise AssertionError(f"{GLOSSARY} has no row for {form}")


def complaints(place: str, texts: Iterable[tuple[int, str]]) -> Iterator[str]:
    for line, text in texts:
        for found in any_word().findall(text):
            yield f'{place}:{line}: instead of "{found}" use: {instead_of(found)}'
        for found in RULE_NUMBER.findall(text):
            yield f"{place}:{line}: rule number {found}: state the consequence"


def literals(source: str) -> Iterator[tuple[int, str]]:
    """Yield the string literals of a module that are texts, without docstrings."""
    within: set[int] = set()  # parts of an f-string, and docstrings
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            within.update(map(id, node.values))
            parts = (part.value for part in node.values if isinstance(part, ast.Constant))
            text = "{}".join(part for part in parts if isinstance(part, str))
        elif isinstance(node, ast.Expr):
            within.add(id(node.value))
            continue
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if id(node) not in within and re.search(r"\w[\w\'\",;:)]* +[\w(`{]", text):
            yield node.lineno, text


def yaml_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the descriptions and messages of a YAML or JSON file, line by line."""
    block_indent = -1
    for number, line in enumerate(source.splitlines(), 1):
        indent = len(line) - len(line.lstrip())
        if match := TEXT_KEY.match(line):
            block_indent = len(match[1])
            yield number, match[2]
        elif 0 <= block_indent < indent:
            yield number, line
        elif line.strip():
            block_indent = -1


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page outside code blocks, without inline code and targets of links."""
    is_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, INLINE_CODE.sub("", line)


def tracked(suffix: str, *folders: str) -> list[str]:
    command = ["git", "ls-files", "--", *(f"{folder}/**{suffix}" for folder in folders)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return found.stdout.split()


def read(path: str) -> str:
    return (ROOT / path).read_text()


def test_texts_of_the_product_use_the_words_of_the_glossary() -> None:
    found: list[str] = []
    for path in tracked(".py", *PRODUCT):
        source = read(path)
        # Parsing all files would take two seconds.
        if any_word().search(source) or RULE_NUMBER.search(source):
            found += complaints(path, literals(source))
    assert not found, "\n".join(found)


def test_texts_of_crds_and_charts_use_the_words_of_the_glossary() -> None:
    paths = [*tracked(".yaml", *YAML_TEXTS), *tracked(".json", *YAML_TEXTS)]
    assert len(paths) > 6
    found = [each for path in paths for each in complaints(path, yaml_texts(read(path)))]
    assert not found, "\n".join(found)


def test_prose_for_users_and_operators_uses_the_words_of_the_glossary() -> None:
    paths = tracked(".md", *PROSE)
    assert len(paths) > 10
    found = [each for path in paths for each in complaints(path, prose(read(path)))]
    assert not found, "\n".join(found)


def test_troubleshooting_names_what_the_product_prints() -> None:
    """Reasons, messages and errors in the first column are literals of the product."""
    page = (ROOT / "docs/operations/troubleshooting.md").read_text()
    named = {
        text
        for row in page.splitlines()
        if row.startswith("| ")
        for text in re.findall(r"`([^`]+)`", row.split(" | ")[0])
    }
    assert len(named) > 30
    source = "".join(read(path) for path in tracked(".py", "cli", "client", "operator", BROKER))
    assert {text for text in named if f'{text}"' not in source} == set()


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (literals('raise ValueError(f"{name} was refused")'), ["refused"]),
        (literals('log.info("decision\\nput  off")'), ["put  off"]),
        (literals('"""It was refused."""\nnames = ("refused",)'), []),
        (yaml_texts("a:\n  description: >-\n    a void\n    entry\n  void: 1\n"), ["void"]),
        (prose("It goes on.\n```\nrefused\n```\n`refused`\n"), ["goes on"]),
    ],
)
def test_a_replaced_word_is_found(texts: Iterator[tuple[int, str]], found: list[str]) -> None:
    assert [word for _, text in texts for word in any_word().findall(text)] == found


def test_a_complaint_names_place_word_and_the_word_to_use() -> None:
    (said,) = complaints("a.py", [(3, "leadership was Refused")])
    assert said == 'a.py:3: instead of "Refused" use: reject, or error'
    assert list(complaints("a.py", [(3, "restore it (S12)")])) == [
        "a.py:3: rule number S12: state the consequence"
    ]
