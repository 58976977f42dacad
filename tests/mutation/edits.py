"""Change guards: what a mutant does to the code at an anchor, and undoing it.

An edit changes the parsed source of the anchor's module and gives the code that is compiled from it
to the function that is in use, so it reaches whoever imported or stored that function before. What
is taken away stays in the code where it never runs: then the new code has the free variables of the
old one, and what yields or awaits still does.
"""

import ast
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any

from tests.mutation.anchors import (
    Anchor,
    AnchorError,
    Function,
    Guarded,
    Place,
    anchor_of,
    place_of,
    product_packages,
)

Mutate = Callable[[Any], Any]  # the original function -> what takes its place
Constant = bool | int | None
Expression = str | Constant  # a str is source, evaluated where it comes to stand
KIND = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Edit(ABC):
    """A change of the parsed source."""

    @abstractmethod
    def changed(self, node: Guarded) -> Guarded:
        """Return what takes the node's place. Raise TypeError for a node of another kind."""


@dataclass(frozen=True, slots=True)
class Drop(Edit):
    """The statement does not run; of a `with` or `try` the body still does, unguarded."""

    def changed(self, node: Guarded) -> Guarded:
        if not isinstance(node, ast.stmt) or isinstance(node, Function | ast.ClassDef):
            raise TypeError("only statements can be dropped")
        kept: list[ast.stmt] = [ast.Pass()]
        if isinstance(node, ast.With | ast.AsyncWith | ast.Try):
            kept = node.body
        return ast.If(test=ast.Constant(True), body=kept, orelse=[node])


@dataclass(frozen=True, slots=True)
class Test(Edit):
    """The test of an `if`, `while` or `assert`, or an operand, is another expression."""

    expression: Expression

    def changed(self, node: Guarded) -> Guarded:
        if isinstance(node, ast.expr):
            return instead(self.expression, node)
        if not isinstance(node, ast.If | ast.While | ast.Assert):
            raise TypeError("neither `if`, `while` or `assert` nor an operand")
        node.test = instead(self.expression, node.test)
        return node


@dataclass(frozen=True, slots=True)
class Returns(Edit):
    """The function returns this before it does anything else."""

    expression: Expression

    def changed(self, node: Guarded) -> Guarded:
        if not isinstance(node, Function):
            raise TypeError("no `def`")
        value = None if self.expression is None else parsed(self.expression)
        node.body = [ast.Return(value=value), *node.body]
        return node


@dataclass(frozen=True, slots=True)
class Value(Edit):
    """What is assigned or returned is another expression."""

    expression: Expression

    def changed(self, node: Guarded) -> Guarded:
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return):
            raise TypeError("neither an assignment nor a `return`")
        if node.value is None:
            raise TypeError("it has no value")
        node.value = instead(self.expression, node.value)
        return node


@dataclass(frozen=True, slots=True)
class Wrap:
    """The function is replaced by what is made of it: for what no other edit can say."""

    mutate: Mutate


def drop() -> Drop:
    return Drop()


def test(expression: Expression) -> Test:
    return Test(expression)


def returns(expression: Expression) -> Returns:
    return Returns(expression)


def value(expression: Expression) -> Value:
    return Value(expression)


def wrap(mutate: Mutate) -> Wrap:
    return Wrap(mutate)


@dataclass(frozen=True, slots=True)
class Patch:
    guard: str  # the name of the anchor
    edit: Edit | Wrap


def at(guard: str, edit: Edit | Wrap) -> Patch:
    return Patch(guard, edit)


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    """While inside, production code is as the patches say."""
    anchored = [(anchor_of(patch.guard), patch.edit) for patch in patches]
    edits: dict[str, list[tuple[Anchor, Edit]]] = {}
    for anchor, edit in anchored:
        if isinstance(edit, Edit):
            edits.setdefault(anchor.module, []).append((anchor, edit))
    with ExitStack() as stack:
        for of_module in edits.values():
            for function, code in edited(of_module):
                stack.callback(setattr, function, "__code__", function.__code__)
                function.__code__ = code
        for anchor, edit in anchored:
            if isinstance(edit, Wrap):
                stack.enter_context(_replaced(anchor, edit))
        yield


def edited(edits: Iterable[tuple[Anchor, Edit]]) -> list[tuple[FunctionType, CodeType]]:
    """Return the functions of one module that the edits change, with their new code.

    Raise AnchorError for what cannot be changed so."""
    edits = list(edits)
    path = edits[0][0].path
    text = path.read_text()
    tree = ast.parse(text)
    # All places before the first change: an edit adds nodes of its own.
    places = [(anchor, edit, place_of(anchor, text, tree)) for anchor, edit in edits]
    for anchor, edit, place in places:
        if place.function is None:
            raise AnchorError(f"guard {anchor.name}: {anchor.place} is in no function")
        try:
            _put(tree, place.node, edit)
        except TypeError as wrong:
            raise AnchorError(f"guard {anchor.name}: {edit} at {anchor.place}: {wrong}") from wrong
    code = compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)
    found: dict[FunctionType, CodeType] = {}
    for anchor, _, place in places:
        function = function_of(anchor, place)
        found[function] = _code_for(function, code, anchor)
    return list(found.items())


def function_of(anchor: Anchor, place: Place) -> FunctionType:
    """Return the outermost function around an anchor, as it is in use."""
    owner, name = _owner_of(anchor, place)
    pending = [vars(owner).get(name)]
    while pending:
        candidate = pending.pop()
        if isinstance(candidate, FunctionType):
            code = candidate.__code__
            if code.co_qualname == place.qualname and code.co_firstlineno == place.first_line:
                return candidate
        pending += _made_of(candidate)
    raise AnchorError(f"guard {anchor.name}: {place.qualname} is not in use as {anchor.place} says")


def original_and_mutated(anchor: Anchor, edit: Wrap) -> tuple[FunctionType, Any]:
    text = anchor.path.read_text()
    place = place_of(anchor, text, ast.parse(text))
    if place.function is None or place.node is not place.function:
        raise AnchorError(
            f"guard {anchor.name}: {anchor.place} is no function of a module or class"
        )
    original = function_of(anchor, place)
    return original, edit.mutate(original)


def parsed(expression: Expression) -> ast.expr:
    if isinstance(expression, str):
        return ast.parse(expression, mode="eval").body
    return ast.Constant(expression)


def instead(expression: Expression, old: ast.expr) -> ast.expr:
    return ast.IfExp(test=ast.Constant(True), body=parsed(expression), orelse=old)


@contextmanager
def _replaced(anchor: Anchor, edit: Wrap) -> Iterator[None]:
    """The attribute of its class or module, and of each module that imported it by name."""
    text = anchor.path.read_text()
    place = place_of(anchor, text, ast.parse(text))
    owner, name = _owner_of(anchor, place)
    attribute = vars(owner)[name]
    original, mutated = original_and_mutated(anchor, edit)
    mutated.__wrapped__ = original  # a mutant that is planted twice is found by what it stands for
    if isinstance(attribute, staticmethod | classmethod):
        mutated = type(attribute)(mutated)
    elif not isinstance(attribute, FunctionType):
        raise AnchorError(f"guard {anchor.name}: {type(attribute).__name__}s are not wrapped")
    with ExitStack() as stack:
        for holder, known_as in [(owner, name), *_importers(owner, attribute)]:
            stack.callback(setattr, holder, known_as, attribute)
            setattr(holder, known_as, mutated)
        yield


def _importers(owner: Any, attribute: Any) -> list[tuple[Any, str]]:
    """Tests that imported it keep what they have: some judge by it."""
    if inspect.isclass(owner):
        return []
    return [
        (module, name)
        for path, module in list(sys.modules.items())
        if module is not owner and path.partition(".")[0] in product_packages()
        for name, held in list(vars(module).items())
        if held is attribute
    ]


def _owner_of(anchor: Anchor, place: Place) -> tuple[Any, str]:
    owner: Any = import_module(anchor.module)
    for name in place.owner:
        owner = getattr(owner, name)
    assert place.function is not None
    return owner, place.function.name


def _made_of(attribute: Any) -> list[Any]:
    """What a decorator was given."""
    if isinstance(attribute, property):
        return [attribute.fget, attribute.fset, attribute.fdel]
    if isinstance(attribute, staticmethod | classmethod):
        return [attribute.__func__]
    if isinstance(attribute, cached_property):
        return [attribute.func]
    wrapped = getattr(attribute, "__wrapped__", None)
    return [] if wrapped is None else [wrapped]


def _put(tree: ast.Module, node: Guarded, edit: Edit) -> None:
    class Put(ast.NodeTransformer):
        def visit(self, visited: ast.AST) -> Any:
            return edit.changed(node) if visited is node else self.generic_visit(visited)

    Put().visit(tree)


def _code_for(function: FunctionType, module: CodeType, anchor: Anchor) -> CodeType:
    """The new code of a function, which has to bind what the old one does."""
    old = function.__code__
    for new in _codes_in(module):
        if (new.co_qualname, new.co_firstlineno) != (old.co_qualname, old.co_firstlineno):
            continue
        if new.co_freevars != old.co_freevars or new.co_flags & KIND != old.co_flags & KIND:
            raise AnchorError(
                f"guard {anchor.name}: {old.co_qualname} has free variables {old.co_freevars},"
                f" with the edit {new.co_freevars}, or yields or awaits no more"
            )
        return new
    raise AnchorError(f"guard {anchor.name}: {old.co_qualname} is not in {anchor.path}")


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes_in(constant)
