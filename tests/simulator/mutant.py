"""What a mutant is: methods of production code replaced by weaker ones, by `setattr`, in a test.

A guard that is one half of a pair (either alone keeps the promise) is planted as the pair, and its
name says so.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

Weaken = Callable[[Any], Any]  # the original -> what takes its place

BROKER = "tidemark_broker."
CONTROLLER = "tidemark_operator.controller."


@dataclass(frozen=True, slots=True)
class Patch:
    target: str  # "module:Class.method" or "module:function"
    weaken: Weaken


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str  # what is no longer done
    rule: str  # the guard of invariants.md, or the rule of safety.md
    patches: tuple[Patch, ...]
    test: str  # a pytest node that fails with it: file, or file::name
    weather: str = ""  # of storms.py; "": no seed is tried
    search: str = ""  # in exhaustive/planted.py: the same guard, noticed by every order of a few
    pair: str = ""  # the mutant that takes its other half away too: either alone keeps the promise
    why_no_seed: str = ""  # where no seed is tried: what the simulated faults lack

    @property
    def targets(self) -> str:
        """Short, for the table."""
        return ", ".join(
            patch.target.removeprefix(BROKER).removeprefix(CONTROLLER) for patch in self.patches
        )


def always(value: object) -> Weaken:
    return lambda original: lambda *arguments, **named: value


def always_property(value: object) -> Weaken:
    return lambda original: property(lambda self: value)


def patch(target: str, weaken: Weaken) -> Patch:
    prefix = "" if target.startswith(("tidemark_", "tests.")) else BROKER
    return Patch(prefix + target, weaken)


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """While inside, production code is as the mutant says."""
    undone: list[tuple[Any, str, Any]] = []
    try:
        for each in mutant.patches:
            owner, name = _owner_of(each.target)
            original = vars(owner)[name]
            undone.append((owner, name, original))
            _, weaker = original_and_weaker(each)
            if isinstance(original, staticmethod | classmethod):
                weaker = type(original)(weaker)
            setattr(owner, name, weaker)
        yield
    finally:
        for owner, name, original in reversed(undone):
            setattr(owner, name, original)


def original_and_weaker(each: Patch) -> tuple[Any, Any]:
    """As functions, also of static and class methods."""
    owner, name = _owner_of(each.target)
    original = vars(owner)[name]
    if isinstance(original, staticmethod | classmethod):
        original = original.__func__
    return original, each.weaken(original)


def _owner_of(target: str) -> tuple[Any, str]:
    module, _, path = target.partition(":")
    owner: Any = import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, name
