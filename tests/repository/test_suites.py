"""Suites are independent: each imports the product, `tests.support` and itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
SUITES = sorted(path.name for path in TESTS.iterdir() if path.is_dir() and any(path.rglob("*.py")))
# Suites whose subject is another suite. The pairs have no circle.
SUBJECTS = {
    ("mutation", "model"): "a mutant that no seed finds is searched for in the model",
    ("mutation", "simulation"): "a mutant is noticed by seeds of the simulation",
    ("regression", "simulation"): "power cuts and busy loops need the simulated disk and clock",
    ("repository", "compatibility"): "docs/clients.md is the table of these tests",
    ("traces", "model"): "a trace is played to the processes of the model",
}
PRODUCT = ("protocol", "operator", "broker_image", "audit", "client", "chaos", "cli", "bench")


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def room_of(name: str) -> tuple[str, ...]:
    """Of `tests.unit.broker.log.test_recovery`: ("unit", "broker"); of others the suite."""
    parts = name.split(".")[1:]
    return tuple(parts[:2]) if parts[0] == "unit" else tuple(parts[:1])


def test_only_known_suites_exist() -> None:
    known = (
        "compatibility fuzz integration kubernetes model mutation property regression repository"
        " security"
    )
    assert set(SUITES) == {*known.split(), "simulation", "support", "traces", "unit"}


@pytest.mark.parametrize("suite", SUITES)
def test_suite_imports_no_other_suite(suite: str) -> None:
    wrong = []
    for path in sorted((TESTS / suite).rglob("*.py")):
        own = room_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for name in imported(path):
            parts = name.split(".")
            if parts[0] != "tests" or len(parts) < 3:
                continue
            other = room_of(name)
            if other not in (own, ("support",)) and (own[0], other[0]) not in SUBJECTS:
                wrong.append(f"{path.relative_to(ROOT)}: {name}")
    assert wrong == []


def test_product_imports_no_test() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for package in PRODUCT
        for path in sorted((ROOT / package).rglob("*.py"))
        for name in imported(path)
        if name.split(".")[0] == "tests"
    ]
    assert wrong == []
