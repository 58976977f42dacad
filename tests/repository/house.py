"""`hack/house-numbers` as a module, for tests that hold one of its figures."""

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


def house_of_one_module(path: Path, source: str) -> Any:
    """A checkout whose product is `client/module.py`."""
    module = path / "client/module.py"
    module.parent.mkdir()
    module.write_text(source)
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", "-C", path, *command], check=True, timeout=60)
    return load_house_numbers().House(path)
