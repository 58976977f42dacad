"""The same job on two executors of a Spark cluster on this machine: processes of their own."""

import subprocess
import sys
from pathlib import Path

import pytest
from tidemark_audit.audit import run
from tidemark_audit.outputs import REPORT
from tidemark_audit.results import from_json
from tidemark_audit.selftest.samples import write_samples
from tidemark_audit.selftest.scoring import drawn

SECONDS = 600


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 60)
def test_two_executors_give_the_answer_of_this_process(tmp_path: Path) -> None:
    samples = tmp_path / "samples"
    samples.mkdir()
    for number, scenario in enumerate(drawn(6, seed=11)):
        write_samples([scenario], samples / f"{number}.parquet")
    report = tmp_path / "report"
    ended = subprocess.run(
        [
            sys.executable, "-m", "tidemark_cli.main", "audit", samples,
            "--master", "local-cluster[2,1,1024]", "--report", report, "-o", "json",
        ],
        check=False, capture_output=True, timeout=SECONDS,
    )  # fmt: skip
    assert ended.returncode in (1, 2), ended.stderr[-2000:]
    on_executors = from_json((report / REPORT).read_bytes())
    here = run(None, [str(samples)])
    assert on_executors.sli_by_partition == here.sli_by_partition
    assert on_executors.findings == here.findings
    assert on_executors.loss_evidence == here.loss_evidence
