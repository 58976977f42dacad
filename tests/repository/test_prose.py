"""Docstrings of functions are sentences in the imperative."""

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def load_house_numbers() -> Any:
    loader = SourceFileLoader("house_numbers", str(ROOT / "hack/house-numbers"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[loader.name] = module  # where its dataclasses are looked up
    loader.exec_module(module)
    return module


def test_no_function_of_the_product_opens_its_docstring_with_a_fragment() -> None:
    total, fragments = load_house_numbers().House(ROOT).docstrings()
    assert total > 1000
    assert fragments == []


def test_a_fragment_is_found(tmp_path: Path) -> None:
    module = tmp_path / "client/module.py"
    module.parent.mkdir()
    module.write_text('def size() -> int:\n    """Of the log, in bytes."""\n    return 0\n')
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", "-C", tmp_path, *command], check=True, timeout=60)
    total, fragments = load_house_numbers().House(tmp_path).docstrings()
    assert (total, fragments) == (1, ["client/module.py:1 Of the log, in bytes."])
