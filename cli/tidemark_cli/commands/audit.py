"""`tidemark audit`: how well replication kept its promises, from what Prometheus stored.

Exit codes: 0 PASS, 1 VIOLATED, 2 LOSS, 3 INCONCLUSIVE, 4 the source cannot be read or the command
line cannot be understood. What it computes lives in `tidemark_audit`, an extra of the package.
"""

import argparse
import importlib
import importlib.util
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark_client.errors import EXIT_FAILED, EXIT_OK, CommandFailed
from tidemark_protocol.audit_summary import encode_summary

from tidemark_cli.audit.options import duration_ms, objectives, what_if_settings, window_of
from tidemark_cli.audit.output import draw, draw_self_test, draw_what_if
from tidemark_cli.audit.summary import no_source, summary_of
from tidemark_cli.output import Output

if TYPE_CHECKING:
    from tidemark_audit.engines.engine import Engine, Progress
    from tidemark_audit.results import AuditResult

HELP = "check replication by Prometheus samples: verdict, findings, loss evidence"
EXIT_NO_SOURCE = 4
EXIT_BAD_USE = EXIT_NO_SOURCE  # 2, which argparse would end with, says here: records are lost
BAR_WIDTH = 30
SEVERITIES = ("critical", "major", "minor")  # the gravest first


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "places",
        nargs="*",
        metavar="SOURCE",
        help="URL of Prometheus, or files and directories of samples: JSON of its API, "
        "OpenMetrics text, dumps of promtool, tall Parquet, TSDB blocks",
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="bearer token for Prometheus"
    )
    parser.add_argument(
        "--engine",
        choices=("spark", "local"),
        default="spark",
        help="engine that computes the audit: spark, or local in this process (default: spark)",
    )
    parser.add_argument(
        "--master",
        metavar="URL",
        help="Spark master, or sc://HOST of Spark Connect (default: local[*])",
    )
    parser.add_argument(
        "--window",
        metavar="TIME",
        help="length of the window, such as 24h, up to --end or the last settled scrape",
    )
    parser.add_argument(
        "--start", metavar="TIME", help="start of the window: RFC 3339, or seconds since 1970"
    )
    parser.add_argument(
        "--end",
        metavar="TIME",
        help="end of the window, exclusive: RFC 3339, or seconds since 1970",
    )
    parser.add_argument(
        "--settle",
        metavar="TIME",
        default="5m",
        help="ignore samples of a running Prometheus that are younger than this (default 5m)",
    )
    parser.add_argument(
        "--slo",
        metavar="FILE",
        help="YAML file of objectives (docs/user/audit-rules.md), or the object {...} itself",
    )
    parser.add_argument(
        "--scrape-interval",
        metavar="TIME",
        help="scrape interval, such as 15s (default: derived from the samples)",
    )
    parser.add_argument(
        "--report", type=Path, metavar="DIR", help="directory for report.json and the tables"
    )
    parser.add_argument(
        "--summary",
        type=Path,
        metavar="FILE",
        help="file for a summary of at most 4 KiB, for the operator",
    )
    parser.add_argument(
        "--fail-on",
        choices=("verdict", "no-verdict", *SEVERITIES),
        default="verdict",
        help="when to exit with an error. verdict: exit code of the verdict. A severity: exit"
        " code 1 if an unplanned finding has at least this severity, 0 otherwise; verdicts other"
        " than PASS and VIOLATED keep their exit codes. no-verdict: exit code 0 for every verdict"
        " (default: verdict)",
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="directory for summaries, so that the next run reads new samples only",
    )
    parser.add_argument(
        "--what-if",
        metavar="SETTINGS",
        help="evaluate the same samples under other settings too: "
        "min.insync.replicas=1,replicationFactor=2,replica.lag.time.max.ms=5000",
    )
    parser.add_argument(
        "--self-test",
        type=int,
        nargs="?",
        const=40,
        metavar="N",
        help="audit N generated clusters with known faults, on both engines (default 40), or on "
        "one with --engine local",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the generated clusters (default 1)"
    )


def prepare_process(arguments: argparse.Namespace) -> None:
    """Spark's own driver code asks for pandas; without Spark it would only be read in."""
    if arguments.engine == "local":
        _require_extra(arguments.engine)
        from tidemark_audit.engines.arrow_without_pandas import leave_out_pandas

        leave_out_pandas()


def run(arguments: argparse.Namespace, output: Output) -> int:
    _require_extra(arguments.engine)
    if arguments.self_test is not None:
        return _self_test(arguments, output)
    try:
        result, what_if = _audited(arguments, output)
    except CommandFailed as failed:
        _write_no_source(arguments.summary, failed)
        raise
    _write(arguments, result)
    if what_if is None:
        output.result(result, lambda console: draw(console, result, arguments.report))
    else:
        both = {"asItWas": result, "whatIf": what_if, "settings": arguments.what_if}
        output.result(both, lambda console: draw_what_if(console, result, what_if))
    return _exit_code(arguments.fail_on, result)


def _exit_code(fail_on: str, result: "AuditResult") -> int:
    """Return the exit code of a result.

    A data loss, or too little evidence to judge by, fails at every severity.
    """
    from tidemark_audit.results import Verdict

    if fail_on == "no-verdict":
        return EXIT_OK
    if fail_on == "verdict" or result.verdict not in (Verdict.PASS, Verdict.VIOLATED):
        return result.verdict.exit_code
    enough = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
    is_grave = any(not each.planned and each.severity.value in enough for each in result.findings)
    return (Verdict.VIOLATED if is_grave else Verdict.PASS).exit_code


def _self_test(arguments: argparse.Namespace, output: Output) -> int:
    from tidemark_audit.engines.local import LocalEngine
    from tidemark_audit.selftest.scoring import self_test

    engines: list[Engine] = [LocalEngine()]
    if arguments.engine == "spark":
        engines.append(_engine(arguments, output))
    found = self_test(
        engines, scenarios=max(1, arguments.self_test), seed=arguments.seed, tell=output.remark
    )
    output.result(found, lambda console: draw_self_test(console, found))
    return EXIT_OK if found.is_good else EXIT_FAILED


def _require_extra(engine: str) -> None:
    """Check that the audit's packages are installed.

    A laptop that only produces and consumes has no Spark.
    """
    wanted = ("tidemark_audit", "numpy", "pyarrow", *(("pyspark",) if engine == "spark" else ()))
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandFailed(
            f"Packages of the audit are not installed: {', '.join(missing)}",
            to_do="make setup-audit, or pip install 'tidemark[audit]'",
            exit_code=EXIT_NO_SOURCE,
        )


def _audited(
    arguments: argparse.Namespace, output: Output
) -> "tuple[AuditResult, AuditResult | None]":
    from tidemark_audit.aggregation.merge import OverlappingSlices
    from tidemark_audit.audit import AuditRequest, audit_what_if
    from tidemark_audit.engines.engine import NoSamples
    from tidemark_audit.nothing_read import reason
    from tidemark_audit.sources.detect import sources_at
    from tidemark_audit.sources.source import SourceError

    slo = objectives(arguments.slo)
    interval = arguments.scrape_interval
    try:
        sources = sources_at(arguments.places, token_file=arguments.token_file)
        window, unsettled_ms = window_of(arguments, sources)
        interval_ms = None if interval is None else duration_ms(interval, "--scrape-interval")
        return audit_what_if(
            _engine(arguments, output),
            sources,
            AuditRequest(window, slo, interval_ms, arguments.checkpoint, unsettled_ms),
            what_if_settings(arguments.what_if),
            progress=_progress(output),
        )
    except SourceError as error:
        raise CommandFailed(
            expected=error.expected,
            found=f"{error.place}: {error.found}",
            to_do=error.to_do,
            exit_code=EXIT_NO_SOURCE,
        ) from error
    except NoSamples as error:
        why = reason(sources, window, unsettled_ms)
        raise CommandFailed(
            expected="samples of brokers and operator within the window",
            found=why.found,
            to_do=why.to_do,
            exit_code=EXIT_NO_SOURCE,
        ) from error
    except OverlappingSlices as error:
        raise CommandFailed(
            expected="each sample of brokers and operator once",
            found=str(error),
            to_do="pass each export only once",
            exit_code=EXIT_NO_SOURCE,
        ) from error


def _engine(arguments: argparse.Namespace, output: Output) -> "Engine":
    if arguments.engine == "local":
        from tidemark_audit.engines.local import LocalEngine

        return LocalEngine()
    from tidemark_audit.engines.session import MasterAlreadySet, NoConnect, NoJava, spark_session
    from tidemark_audit.engines.spark import SparkEngine

    output.remark("starting Spark (not needed with --engine local)")
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
    except MasterAlreadySet as error:
        raise CommandFailed(
            expected="no --master under spark-submit, which sets the master",
            found=str(error),
            to_do="remove --master, or pass it to spark-submit",
            exit_code=EXIT_BAD_USE,
        ) from error
    except NoConnect as error:
        raise CommandFailed(
            expected="the packages of Spark Connect",
            found=str(error),
            to_do="install them: pip install 'pyspark[connect]'",
            exit_code=EXIT_NO_SOURCE,
        ) from error


def _write(arguments: argparse.Namespace, result: "AuditResult") -> None:
    from tidemark_audit.outputs import write_outputs

    try:
        if arguments.summary is not None:  # first: a full volume of reports hides no verdict
            arguments.summary.write_bytes(encode_summary(summary_of(result)))
        if arguments.report is not None:
            write_outputs(result, arguments.report)
    except OSError as error:
        raise CommandFailed(
            expected="a writable directory for the report",
            found=str(error),
            to_do="check the directory and its free space",
            exit_code=EXIT_NO_SOURCE,
        ) from error


def _write_no_source(summary: Path | None, failed: CommandFailed) -> None:
    if summary is not None:
        sentence = f"expected {failed.expected}, found {failed.found}; {failed.to_do}"
        summary.write_bytes(encode_summary(no_source(sentence)))


def _progress(output: Output) -> "Progress":
    if output.is_json or not output.console.is_terminal:
        return lambda done, total: None
    started = time.monotonic()

    def tell(done: int, total: int) -> None:
        filled = BAR_WIDTH * done // max(1, total)
        bar = "#" * filled + "." * (BAR_WIDTH - filled)
        output.console.print(
            f"reading [{bar}] {done}/{total} slices, {time.monotonic() - started:.1f} s",
            end="\n" if done == total else "\r",
            markup=False,
        )

    return tell
