"""What a small audit does not wait for: packages that it never uses, slower than its samples."""

import subprocess
import sys
from pathlib import Path

import pytest
from tidemark_audit.selftest.samples import write_samples
from tidemark_audit.selftest.scoring import drawn

WITHOUT = ("pandas", "pyspark", "aiohttp", "kubernetes", "confluent_kafka")
SAY = (
    "import sys; from tidemark_cli.main import main;"
    " sys.argv = ['tidemark', *sys.argv[1:]]; code = main();"
    f" print([name for name in {WITHOUT!r} if name in sys.modules], file=sys.stderr);"
    " sys.exit(code)"
)


@pytest.mark.timeout(240)
def test_an_audit_without_spark_imports_nothing_of_other_commands(tmp_path: Path) -> None:
    samples = tmp_path / "samples.parquet"
    write_samples(drawn(1, seed=3), samples)
    ended = subprocess.run(
        [sys.executable, "-c", SAY, "audit", samples, "--engine", "local", "-o", "json"],
        check=False, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert ended.returncode in (0, 1, 2, 3), ended.stderr
    assert ended.stderr.splitlines()[-1] == "[]"
    assert ended.stdout.startswith('{"verdict"')
