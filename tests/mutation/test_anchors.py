"""Each edit of a guard, at an anchor in a module that is made for the test."""

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.mutation import anchors, edits
from tests.mutation.anchors import AnchorError
from tests.mutation.edits import at, drop, patched, returns, value, wrap

SOURCE = '''
from contextlib import contextmanager
from functools import cached_property

def refused(error):
    @contextmanager
    def around():
        try:
            yield
        except error:
            raise LookupError from None
    return around()

# guard: function (S1)
def function(number):
    """A docstring."""
    return number + 1

def seen():
    return function(1)

def statements(number):
    found = []
    # guard: append (S1)
    found.append(number)
    # A reason.
    # guard: if (S1)

    if number > 1:
        found.append("if")
    elif number == 1:  # guard: elif (S1)
        found.append("elif")
    # guard: with (S1)
    with refused(ValueError):
        if number < 0:
            raise ValueError
    result = len(found)  # guard: assigned (S1)
    if (
        number > 10
        # guard: operand (S1)
        and number < 20
    ):
        number += 100
        result = number
    return result

def outer(step):
    def inner(number):
        # guard: inner (S1)
        if number > 5:
            return 0
        return number + step
    return inner

class Base:
    def name(self):
        return "base"

class Guarded(Base):
    # guard: super (S1)
    def name(self):
        return super().name() + "!"

    # guard: property (S1)
    @property
    def shown(self):
        return 1

    @shown.setter
    def shown(self, number):
        # guard: setter (S1)
        assert number > 0

    # guard: cached (S1)
    @cached_property
    def cached(self):
        return 1

    # guard: static (S1)
    @staticmethod
    def static(number):
        return number

    # guard: class (S1)
    @classmethod
    def made(cls):
        return cls.__name__

    # guard: manager (S1)
    @contextmanager
    def manager(self):
        yield 1

async def awaited(number):
    # guard: awaited (S1)
    if number > 1:
        return "more"
    return "less"

# guard: coroutine (S1)
async def coroutine():
    return 1

# guard: generator (S1)
def generator():
    yield 1
    yield 2

# guard: async-generator (S1)
async def async_generator():
    # guard: async-yield (S1)
    if True:
        yield 1
    yield 2

# guard: twice (S1)
def once():
    pass

# guard: twice (S1)
def again():
    pass

# guard: outside (S1)
CONSTANT = 1

# guard: last (S1)
'''
USER = "from guarded_module import function\n\ndef used():\n    return function(1)\n"


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "guarded_module.py").write_text(SOURCE)
    (tmp_path / "guarded_user.py").write_text(USER)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = tuple(anchors.anchors_in(SOURCE, "guarded_module", tmp_path / "guarded_module.py"))
    monkeypatch.setattr(anchors, "all_anchors", lambda: found)
    packages = {"guarded_user": "", "guarded_module": ""}
    monkeypatch.setattr(edits, "product_packages", lambda: packages)
    yield importlib.import_module("guarded_module")
    for name in packages:
        sys.modules.pop(name, None)


def user() -> ModuleType:
    return importlib.import_module("guarded_user")


def test_a_function_returns_something_else_until_the_end(guarded: Any) -> None:
    with patched([at("function", returns("number * 10"))]):
        assert guarded.function(2) == 20
    assert guarded.function(2) == 3


def test_whoever_imported_the_function_by_name_has_the_edit_too(guarded: Any) -> None:
    importer = user()
    with patched([at("function", returns(0))]):
        assert (guarded.seen(), importer.used()) == (0, 0)
    with patched([at("function", wrap(lambda original: lambda number: original(number) * 10))]):
        assert (guarded.seen(), importer.used()) == (20, 20)
    assert (guarded.seen(), importer.used()) == (2, 2)


@pytest.mark.parametrize(
    ("guard", "edit", "number", "expected"),
    [
        ("append", drop(), 0, 0),
        ("if", drop(), 2, 1),
        ("if", edits.test(True), 0, 2),
        ("if", edits.test("number == 3"), 2, 1),
        ("elif", edits.test(False), 1, 1),
        ("assigned", value(7), 0, 7),
        ("assigned", value("-number"), 3, -3),
        ("operand", edits.test(True), 30, 130),
        ("operand", edits.test("number < 12"), 15, 2),
    ],
)
def test_a_statement_or_an_operand_is_changed(
    guarded: Any, guard: str, edit: Any, number: int, expected: int
) -> None:
    before = guarded.statements(number)
    with patched([at(guard, edit)]):
        assert guarded.statements(number) == expected
    assert guarded.statements(number) == before != expected


def test_without_its_guard_the_body_of_a_with_still_runs(guarded: Any) -> None:
    with pytest.raises(LookupError):
        guarded.statements(-1)
    with patched([at("with", drop())]), pytest.raises(ValueError):
        guarded.statements(-1)


def test_edits_of_one_function_are_made_together(guarded: Any) -> None:
    with patched([at("append", drop()), at("if", edits.test(True)), at("assigned", value(9))]):
        assert guarded.statements(0) == 9
    with patched([at("append", drop()), at("if", edits.test(True))]):
        assert guarded.statements(0) == 1


def test_an_inner_function_is_changed_and_keeps_what_it_closes_over(guarded: Any) -> None:
    with patched([at("inner", edits.test(False))]):
        assert guarded.outer(100)(6) == 106
    assert guarded.outer(100)(6) == 0


def test_a_method_with_super_is_changed(guarded: Any) -> None:
    living = guarded.Guarded()
    with patched([at("super", returns("super().name() + '?'"))]):
        assert living.name() == "base?"
    with patched([at("super", returns("'without'"))]):
        assert living.name() == "without"
    assert living.name() == "base!"


def test_what_decorators_made_is_changed(guarded: Any) -> None:
    living = guarded.Guarded()
    with patched([at(guard, returns(5)) for guard in ("property", "cached", "static", "class")]):
        assert (living.shown, living.cached) == (5, 5)
        assert (guarded.Guarded.static(1), guarded.Guarded.made()) == (5, 5)
    assert (living.shown, guarded.Guarded.static(1), guarded.Guarded.made()) == (1, 1, "Guarded")
    with pytest.raises(AssertionError):
        living.shown = 0
    with patched([at("setter", edits.test(True))]):
        living.shown = 0
    with patched([at("manager", returns(None))]), pytest.raises(RuntimeError), living.manager():
        pass


@pytest.mark.parametrize("guard", ["static", "class"])
def test_static_and_class_methods_are_wrapped_as_such(guarded: Any, guard: str) -> None:
    made = guarded.Guarded
    with patched([at(guard, wrap(lambda original: lambda *given: (guard, original(*given))))]):
        found = made.static(1) if guard == "static" else made.made()
        assert found == (guard, 1 if guard == "static" else "Guarded")
    assert (made.static(1), made.made()) == (1, "Guarded")


def test_what_awaits_or_yields_still_does(guarded: Any) -> None:
    async def all_of_it() -> list[int]:
        return [each async for each in guarded.async_generator()]

    with patched([at("awaited", edits.test(True)), at("coroutine", returns(2))]):
        assert asyncio.run(guarded.awaited(0)) == "more"
        assert asyncio.run(guarded.coroutine()) == 2
    with patched([at("generator", returns(None)), at("async-generator", returns(None))]):
        assert (list(guarded.generator()), asyncio.run(all_of_it())) == ([], [])
    with patched([at("async-yield", edits.test(False))]):
        assert asyncio.run(all_of_it()) == [2]
    assert (list(guarded.generator()), asyncio.run(all_of_it())) == ([1, 2], [1, 2])


@pytest.mark.parametrize(
    ("guard", "edit", "reported"),
    [
        ("missing", drop(), "expected one anchor, found none"),
        ("twice", drop(), "expected one anchor, found .*:[0-9]+, .*:[0-9]+"),
        ("outside", value(2), "is in no function"),
        ("last", drop(), "nothing begins below"),
        ("function", drop(), "only statements can be dropped"),
        ("function", edits.test(True), "neither `if`"),
        ("append", returns(1), "no `def`"),
        ("append", value(1), "neither an assignment"),
        ("inner", wrap(lambda original: original), "no function of a module or class"),
        ("property", wrap(lambda original: original), "propertys are not wrapped"),
    ],
)
def test_what_does_not_fit_is_refused(guarded: Any, guard: str, edit: Any, reported: str) -> None:
    with pytest.raises(AnchorError, match=reported), patched([at(guard, edit)]):
        pass


def test_code_that_would_bind_other_variables_is_refused(guarded: Any) -> None:
    with (
        pytest.raises(AnchorError, match="free variables"),
        patched([at("property", returns("super().name()"))]),
    ):
        pass


def test_a_comment_that_only_looks_like_an_anchor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AnchorError, match="<name>"):
        list(anchors.anchors_in("# guard: no rule\n", "module", tmp_path / "module.py"))
    assert list(anchors.anchors_in("TEXT = '# guard: in a string'\n", "module", tmp_path)) == []


def test_anchors_are_found_in_packages_by_their_folders(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "__init__.py").write_text("# guard: one (S1)\n")
    (tmp_path / "inner" / "module.py").write_text("# guard: two (S2)\n")
    found = {each.name: each.module for each in anchors.anchors_under(tmp_path, "package")}
    assert found == {"one": "package.inner", "two": "package.inner.module"}
