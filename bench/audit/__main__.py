"""`make bench-audit`: the audit on Spark and without beside DuckDB, on the same Parquet files.

Every run is a whole process from its start, as a user would see it; engines take turns within each
round. Both must give the same answers (`answers.py`): a difference ends this with 1. Files are made
once (docs/operations/performance.md says how large). Writes
build/bench-audit.json and build/bench-audit.svg.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pyspark
from tidemark_audit.results import from_json

from bench.audit import report
from bench.audit.answers import Answers, answers_of_duckdb, differences, responses_of_audit, rows_of
from bench.audit.processes import CommandFailed, Measured, measured
from bench.audit.report import Size
from bench.audit.samples import samples_file
from bench.audit.transports import samples_per_second

ROOT = Path(__file__).parents[2]
ENGINES = ("duckdb", "spark", "local")
SIZES = (1_000_000, 10_000_000, 100_000_000)
HUGE = 1_000_000_000
VERDICTS = (0, 1, 2, 3)  # exit codes of an audit that came to an end
began = time.monotonic()


def say(text: str) -> None:
    minutes, seconds = divmod(int(time.monotonic() - began), 60)
    print(f"{minutes:02}:{seconds:02} {text}", flush=True)


def main() -> int:
    arguments = _arguments()
    numbers = sorted({*(arguments.samples or SIZES), *((HUGE,) if arguments.huge else ())})
    engines = arguments.engine or list(ENGINES)
    sizes: list[Size] = []
    transports: dict[str, float] = {}
    try:
        say("one round that does not count: Java writes its archive of classes, Python its own")
        for engine in engines:
            _run(engine, _file(numbers[0]))
        for samples in numbers:
            sizes.append(_measure_size(samples, engines, arguments.rounds))
        if arguments.remote_samples:
            file = _file(arguments.remote_samples)
            transports = samples_per_second(file, arguments.rounds, say)
    except (CommandFailed, _Different) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:  # what was measured until then, hours maybe
        _write(sizes, transports)
    report.print_table(sizes, transports)
    say("done; build/bench-audit.json, build/bench-audit.svg")
    return 0


def _write(sizes: list[Size], transports: dict[str, float]) -> None:
    about = {
        "python": platform.python_version(), "kernel": platform.release(),
        "processors": os.cpu_count(), "pyspark": pyspark.__version__,
        "duckdb": duckdb.__version__, "load": os.getloadavg(),
    }  # fmt: skip
    if sizes:
        report.write(ROOT / "build", sizes, transports, about)


class _Different(Exception):
    """The audit and DuckDB do not say the same of the same samples."""


def _file(samples: int) -> Path:
    last = -1.0

    def progress(done: int, partitions: int) -> None:
        nonlocal last
        if time.monotonic() - last > 5 or done == partitions:
            last = time.monotonic()
            say(f"making {samples:,} samples: {done} of {partitions} partitions")

    return samples_file(samples, progress)


def _measure_size(samples: int, engines: list[str], rounds: int) -> Size:
    file = _file(samples)
    rows = pq.read_metadata(file).num_rows
    size = Size(rows, file.stat().st_size / 1e6, {engine: [] for engine in engines})
    for number in range(rounds):
        # The first reads the file from the disk if it must: it is another one in each round.
        turn = number % len(engines)
        responses: dict[str, Answers] = {}
        for engine in (*engines[turn:], *engines[:turn]):
            run, responses[engine] = _run(engine, file)
            size.runs[engine].append(run)
            say(f"{rows:,} samples, round {number + 1} of {rounds}, {engine}: {_figures(run)}")
        expected = responses.get("duckdb", next(iter(responses.values())))
        for engine, found in responses.items():
            different = differences(found, expected)
            if different:
                raise _Different(f"{engine}, {rows:,} samples: " + "; ".join(different))
        size.answer_rows = rows_of(expected)
    return size


def _run(engine: str, file: Path) -> tuple[Measured, Answers]:
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as directory:
        run = measured(_command(engine, file, Path(directory)), codes=VERDICTS)
        if engine == "duckdb":
            return run, answers_of_duckdb(Path(directory))
    responses = responses_of_audit(from_json(run.output))
    run.output = b""
    return run, responses


def _figures(run: Measured) -> str:
    memory = ", ".join(
        f"{kind} {run.cpu[kind]:.2f} s and {peak.anonymous_mb:,.0f} MB"
        f" (resident {peak.resident_mb:,.0f})"
        for kind, peak in sorted(run.peaks.items())
    )
    return f"{run.wall_seconds:.2f} s, processor {run.cpu_seconds:.2f} s: {memory}"


def _command(engine: str, file: Path, answers: Path) -> list[str | Path]:
    if engine == "duckdb":
        return [sys.executable, "-m", "bench.audit.duckdb_audit", file, answers]
    return [
        *(sys.executable, "-m", "tidemark_cli.main", "audit", file),
        *("--engine", engine, "-o", "json"),
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.audit", description=__doc__)
    parser.add_argument(
        "--samples", type=int, action="append", help=f"repeatable; else {SIZES}", metavar="N"
    )
    parser.add_argument("--huge", action="store_true", help=f"{HUGE:,} samples too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", choices=ENGINES, action="append", help="repeatable; else all")
    parser.add_argument(
        "--remote-samples", type=int, default=1_000_000, metavar="N",
        help="read through a Prometheus (default 1,000,000; 0: none)",
    )  # fmt: skip
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
