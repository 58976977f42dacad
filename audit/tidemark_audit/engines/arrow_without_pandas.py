"""Arrow without pandas: more than a second of processor time for a process that needs only Arrow.

pyarrow imports pandas when it makes its first array, only to ask whether what it is given is one of
pandas' series. The audit gives it none. Processes that are the audit's alone (the command, the
workers of a Spark session that it started) say so here; a notebook's process never does.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class WithoutPandas(MetaPathFinder):
    """Says of pandas, and of nothing else, that it is not installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("left out: this process is the audit's alone", name=fullname)
        return None


def leave_out_pandas() -> None:
    """Prevent imports of pandas in this process; without effect if it is imported already."""
    if not any(isinstance(finder, WithoutPandas) for finder in sys.meta_path):
        sys.meta_path.insert(0, WithoutPandas())
