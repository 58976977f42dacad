"""Find guards: the statements that a mutant may change, each named by a comment.

`# guard: <name> (<rule>)` stands on a line of its own above a statement, a `def` or an operand of
`and` or `or`, or at the end of its first line. Anchors are found by reading the packages, never by
the path of a module, so a guard may move without its mutants being told.
"""

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARK = "# guard:"
FORM = re.compile(r"# guard: (?P<name>[a-z0-9]+(?:-[a-z0-9]+)*) \((?P<rule>\S.*)\)")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Guarded = ast.stmt | ast.expr


class AnchorError(Exception):
    """A mutant and the code do not fit together."""


@dataclass(frozen=True, slots=True)
class Anchor:
    name: str
    rule: str
    module: str  # dotted, as it is now
    path: Path
    line: int  # of the comment

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Place:
    """The node of an anchor in a parsed module."""

    node: Guarded
    owner: tuple[str, ...]  # the classes around the outermost function
    function: Function | None  # the outermost one, which may be the node; None outside of any

    @property
    def first_line(self) -> int:
        """Of the function, with its decorators."""
        assert self.function is not None
        return first_line(self.function)

    @property
    def qualname(self) -> str:
        assert self.function is not None
        return ".".join((*self.owner, self.function.name))


def anchor_of(name: str) -> Anchor:
    """Raise AnchorError unless there is exactly one."""
    found = [anchor for anchor in all_anchors() if anchor.name == name]
    if len(found) != 1:
        places = ", ".join(anchor.place for anchor in found) or "none"
        raise AnchorError(f"guard {name}: expected one anchor, found {places}")
    return found[0]


@cache
def product_packages() -> dict[str, str]:
    """By name: the folder."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return dict(project["tool"]["setuptools"]["package-dir"])


@cache
def all_anchors() -> tuple[Anchor, ...]:
    """Of the product's packages and of the tests, as some guards stand in simulated parts."""
    return tuple(
        anchor
        for package, folder in (product_packages() | {"tests": "tests"}).items()
        for anchor in anchors_under(ROOT / folder, package)
    )


def anchors_under(folder: Path, package: str) -> Iterator[Anchor]:
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text()
        if MARK in text:
            inner = path.relative_to(folder).with_suffix("").parts
            parts = inner[:-1] if inner[-1] == "__init__" else inner
            yield from anchors_in(text, ".".join((package, *parts)), path)


def anchors_in(text: str, module: str, path: Path) -> Iterator[Anchor]:
    """Raise AnchorError for a comment that begins as an anchor does and is none."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or not token.string.startswith(MARK):
            continue
        form = FORM.fullmatch(token.string)
        if form is None:
            raise AnchorError(f"{path}:{token.start[0]}: not `{MARK} <name> (<rule>)`")
        yield Anchor(form["name"], form["rule"], module, path, token.start[0])


def place_of(anchor: Anchor, text: str, tree: ast.Module) -> Place:
    """Raise AnchorError when the comment belongs to nothing that can be changed."""
    line = _first_line_of_code(text.splitlines(), anchor.line)
    statement = operand = None
    for place in _places(tree.body, (), None):
        if place.node.lineno != line and first_line(place.node) != line:
            continue
        if isinstance(place.node, ast.stmt):
            statement = statement or place  # the outermost of those on one line
        else:
            operand = operand or place
    found = statement or operand
    if found is None:
        raise AnchorError(f"guard {anchor.name}: nothing begins below {anchor.place}")
    return found


def _first_line_of_code(lines: list[str], line: int) -> int:
    """Of the comment's line, or of what stands below it when it has a line of its own."""
    if not lines[line - 1].lstrip().startswith("#"):
        return line
    following = range(line, len(lines))
    is_code = (n + 1 for n in following if lines[n].strip() and lines[n].lstrip()[0] != "#")
    return next(is_code, len(lines) + 1)


def first_line(node: Guarded) -> int:
    """With its decorators."""
    if not isinstance(node, Function | ast.ClassDef):
        return node.lineno
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _places(
    nodes: list[ast.stmt] | list[ast.AST], owner: tuple[str, ...], function: Function | None
) -> Iterator[Place]:
    """Statements and operands, the outer ones before those in them."""
    for node in nodes:
        inner, around = owner, function
        if isinstance(node, Function) and function is None:
            around = node
        if isinstance(node, ast.ClassDef) and function is None:
            inner = (*owner, node.name)
        if isinstance(node, ast.stmt):
            yield Place(node, owner, around)
        if isinstance(node, ast.BoolOp):
            yield from (Place(operand, owner, around) for operand in node.values)
        yield from _places(list(ast.iter_child_nodes(node)), inner, around)
