"""What no linter checks: names, paths of machines, dependencies with reasons."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def tracked(pattern: str) -> list[Path]:
    """Files that git knows or would add, so that a new file is judged before its commit."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return [ROOT / name for name in listed if (ROOT / name).is_file()]


def test_no_module_has_a_name_that_says_nothing() -> None:
    empty_names = {"utils", "helpers", "common", "base", "manager", "misc"}
    assert [path.name for path in tracked("*.py") if path.stem in empty_names] == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in tracked("*.py")
        if path.stat().st_size > 0
        and not path.read_text().lstrip("#! \n").startswith(('"""', "usr"))
    ]
    assert silent == []


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    machine_path = re.compile(r"(?<![\w.$}])/(work|root|home/\w+)/")
    found = []
    for path in tracked("*"):
        if path.suffix in {".sum", ".lock", ".png"} or path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if machine_path.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert found == []


def test_the_operator_folder_does_not_shadow_the_standard_library() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_every_runtime_dependency_has_a_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    reasons = (ROOT / "docs" / "development" / "dependencies.md").read_text()
    entries = project["dependencies"] + project["optional-dependencies"]["audit"]
    names = [re.split(r"[<>=\[]", entry)[0] for entry in entries]
    assert [name for name in names if f"| {name} |" not in reasons] == []


def test_no_test_forgets_to_run_what_it_defines() -> None:
    """One did: a scenario without `run(scenario)` proved nothing for weeks."""
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    forgotten = [
        f"{path.relative_to(ROOT)}: {test.name}: {inner.name}"
        for path in tracked("tests/*.py")
        for test in ast.walk(ast.parse(path.read_text()))
        if isinstance(test, functions) and test.name.startswith("test_")
        for inner in test.body
        if isinstance(inner, functions)
        if not any(isinstance(node, ast.Name) and node.id == inner.name for node in ast.walk(test))
    ]
    assert forgotten == []
