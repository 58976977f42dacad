"""`tidemark audit`: how well replication kept its promises, from what Prometheus stored.

Exit codes: 0 PASS, 1 VIOLATED, 2 LOSS, 3 INCONCLUSIVE, 4 the source cannot be read or the command
line cannot be understood. What it computes lives in `tidemark_audit`, an extra of the package.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tidemark_protocol.audit_summary import encode_summary

from tidemark_cli.audit_answer import draw
from tidemark_cli.audit_summary import summary_of
from tidemark_cli.failures import CommandFailed
from tidemark_cli.output import Output

if TYPE_CHECKING:
    from tidemark_audit.engines.engine import Engine, Progress
    from tidemark_audit.results import AuditResult
    from tidemark_audit.slo import Slo
    from tidemark_audit.sources.source import Window

HELP = "judge replication from Prometheus samples: verdict, findings, loss evidence"
EXIT_NO_SOURCE = 4
EXIT_USAGE = 4  # 2 would say that records are lost
UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "places",
        nargs="*",
        metavar="SOURCE",
        help="files or directories of samples: API JSON lines, OpenMetrics text, tall Parquet",
    )
    parser.add_argument(
        "--engine",
        choices=("spark", "local"),
        default="spark",
        help="spark, or the same kernel in this process (default: spark)",
    )
    parser.add_argument(
        "--master",
        metavar="URL",
        help="Spark's master, or sc://host of Connect (default: local[*])",
    )
    parser.add_argument("--start", metavar="TIME", help="window start: RFC 3339, or seconds")
    parser.add_argument("--end", metavar="TIME", help="window end, excluded: RFC 3339, or seconds")
    parser.add_argument(
        "--window", metavar="TIME", help="as 24h: what ends at --end, now if that is not given"
    )
    parser.add_argument(
        "--slo", metavar="FILE", help="YAML of objectives (docs/audit-rules.md), or {...} itself"
    )
    parser.add_argument(
        "--scrape-interval", metavar="TIME", help="as 15s (default: taken from the samples)"
    )
    parser.add_argument(
        "--report", type=Path, metavar="DIR", help="where report.json and tables are written"
    )
    parser.add_argument(
        "--summary",
        type=Path,
        metavar="FILE",
        help="where 4 KiB about the verdict are written, for the operator",
    )
    parser.add_argument(
        "--fail-on",
        choices=("verdict", "no-verdict"),
        default="verdict",
        help="no-verdict: end with 0 whatever the verdict, if there is one (default: verdict)",
    )


def usage_error(message: str) -> NoReturn:
    """Instead of argparse's exit code 2, which here says that records are lost."""
    sys.stderr.write(f"tidemark audit: {message}; see tidemark audit --help\n")
    raise SystemExit(EXIT_USAGE)


def run(arguments: argparse.Namespace, output: Output) -> int:
    _require_extra()
    result = _audited(arguments, output)
    output.result(result, lambda console: draw(console, result))
    if arguments.summary is not None:
        arguments.summary.write_bytes(encode_summary(summary_of(result)))
    return 0 if arguments.fail_on == "no-verdict" else result.verdict.exit_code


def _require_extra() -> None:
    try:
        import tidemark_audit  # noqa: F401
    except ImportError as error:
        raise CommandFailed(
            expected="the packages of the audit",
            found=str(error),
            to_do="install them: pip install 'tidemark[audit]'",
            exit_code=EXIT_NO_SOURCE,
        ) from error


def _audited(arguments: argparse.Namespace, output: Output) -> "AuditResult":
    from tidemark_audit.audit import audit
    from tidemark_audit.engines.engine import NothingRead
    from tidemark_audit.kernel.merge import OverlappingSlices
    from tidemark_audit.sources.detect import sources_at
    from tidemark_audit.sources.source import SourceError

    window, slo = _window(arguments), _slo(arguments)
    interval = arguments.scrape_interval
    try:
        sources = sources_at(arguments.places)
        engine = _engine(arguments, output)
        return audit(
            engine,
            sources,
            window=window,
            slo=slo,
            interval_ms=None if interval is None else duration_ms(interval),
            progress=_progress(output),
        )
    except SourceError as error:
        raise CommandFailed(
            expected=error.expected,
            found=f"{error.place}: {error.found}",
            to_do=error.to_do,
            exit_code=EXIT_NO_SOURCE,
        ) from error
    except (NothingRead, OverlappingSlices) as error:
        raise CommandFailed(
            expected="samples of one cluster's brokers, each once, within the window",
            found=str(error),
            to_do="check the window, and that the export holds the families of docs/metrics.md",
            exit_code=EXIT_NO_SOURCE,
        ) from error


def _engine(arguments: argparse.Namespace, output: Output) -> "Engine":
    if arguments.engine == "local":
        from tidemark_audit.engines.local import LocalEngine

        return LocalEngine()
    from tidemark_audit.engines.session import NoJava, spark_session
    from tidemark_audit.engines.spark import SparkEngine

    output.remark("starting Spark (--engine local does without)")
    # An image has the archive with it, where its user cannot write.
    archives = os.environ.get("TIDEMARK_SPARK_ARCHIVE", Path.home() / ".cache" / "tidemark")
    try:
        return SparkEngine(spark_session(arguments.master, archive_directory=Path(archives)))
    except NoJava as error:
        raise CommandFailed(
            expected="Java 17 or newer for Spark",
            found=str(error),
            to_do="install openjdk-17-jre-headless, or use --engine local",
            exit_code=EXIT_NO_SOURCE,
        ) from error


def _progress(output: Output) -> "Progress":
    if output.is_json or not output.console.is_terminal:
        return lambda done, total: None
    started = time.monotonic()

    def tell(done: int, total: int) -> None:
        width = 30
        filled = width * done // max(1, total)
        seconds = time.monotonic() - started
        bar = "#" * filled + "." * (width - filled)
        end = "\n" if done == total else "\r"
        output.console.print(
            f"reading [{bar}] {done}/{total} slices, {seconds:.1f} s", end=end, markup=False
        )

    return tell


def _window(arguments: argparse.Namespace) -> "Window":
    from tidemark_audit.sources.source import Window

    start = None if arguments.start is None else time_ms(arguments.start)
    end = None if arguments.end is None else time_ms(arguments.end)
    if arguments.window is None:
        return Window(start, end)
    if start is not None:
        raise CommandFailed(
            expected="--start or --window",
            found="both",
            to_do="leave one of them out",
            exit_code=EXIT_USAGE,
        )
    end = round(time.time() * 1000) if end is None else end
    return Window(end - duration_ms(arguments.window), end)


def _slo(arguments: argparse.Namespace) -> "Slo":
    from tidemark_audit.slo import BadObjectives, Slo, read_slo, slo_of_text

    if arguments.slo is None:
        return Slo()
    try:
        is_document = arguments.slo.startswith("{")
        return slo_of_text(arguments.slo) if is_document else read_slo(Path(arguments.slo))
    except BadObjectives as error:
        raise CommandFailed(
            expected="objectives in YAML",
            found=str(error),
            to_do="see docs/audit-rules.md for the names and units",
            exit_code=EXIT_USAGE,
        ) from error


def time_ms(text: str) -> int:
    """RFC 3339, or seconds since 1970. Raises CommandFailed."""
    try:
        return round(float(text) * 1000)
    except ValueError:
        pass
    from datetime import UTC, datetime

    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise _bad_time(text, "2026-05-01T12:00:00Z, or seconds since 1970") from error
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def duration_ms(text: str) -> int:
    """As Prometheus writes it: 500ms, 15s, 1h. Raises CommandFailed."""
    number, unit = (text[:-2], 1) if text.endswith("ms") else (text[:-1], UNITS_MS.get(text[-1:]))
    if unit is None or not number.isdecimal() or int(number) == 0:
        raise _bad_time(text, "a duration as 15s")
    return int(number) * unit


def _bad_time(text: str, expected: str) -> CommandFailed:
    return CommandFailed(
        expected=expected, found=repr(text), to_do="write it so", exit_code=EXIT_USAGE
    )
