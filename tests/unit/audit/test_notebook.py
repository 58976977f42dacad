"""The notebook of the examples runs, cell by cell, and shows what the audit found."""

import runpy
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tidemark_audit.results import Verdict

from tests.support.audit_exports import Export, brokers, partition

pytestmark = pytest.mark.timeout(300)
NOTEBOOK = Path(__file__).resolve().parents[3] / "examples" / "audit_notebook.py"


def test_the_notebook_shows_who_was_missing(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = Export()
    partition(export, in_sync=lambda t: {1, 2} if 30_000 <= t < 50_000 else {1, 2, 3})
    brokers(export)
    path = export.write(tmp_path / "export.jsonl")
    monkeypatch.setattr(sys, "argv", [str(NOTEBOOK), str(path)])
    # Its `getOrCreate` finds the session of the tests.
    cells = runpy.run_path(str(NOTEBOOK))
    assert cells["result"].verdict is Verdict.VIOLATED
    assert [tuple(row) for row in cells["missing"].collect()] == [("3", False, 20.0)]
    assert [tuple(row) for row in cells["fewest"].collect()] == [("orders", 0, 2.0)]
    counted = {row["metric"]: row["count"] for row in cells["families"].collect()}
    assert counted["tidemark_broker_epoch"] == 3 * 120
