"""`python -m tests.integration.disconnect_rounds`: rounds of cut links with figures, as `tidemark
demo` tells.

Options as of the demo: --rounds, --kinds, --quiet-seconds, --interval-ms, --report.
"""

import argparse
import asyncio
import sys
from pathlib import Path

import msgspec
from rich.console import Console
from tidemark_chaos.experiment import Experiment, report_fields
from tidemark_cli.commands.demo import chosen_kinds
from tidemark_cli.demo_output import ProgressOutput
from tidemark_client.errors import CommandFailed

from tests.integration.linked_environment import LinkedEnvironment


async def run(arguments: argparse.Namespace) -> int:
    events = arguments.report.parent / "cut-load.ndjson"
    environment = LinkedEnvironment(events=events, interval_ms=arguments.interval_ms)
    kinds = chosen_kinds(arguments.kinds, arguments.rounds, environment)
    experiment = Experiment(
        environment, ProgressOutput(Console()), quiet_seconds=arguments.quiet_seconds
    )
    report = await experiment.tell(kinds)
    written = msgspec.json.format(msgspec.json.encode(report_fields(report)), indent=2)
    arguments.report.write_bytes(written + b"\n")
    return 0 if report.is_good else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--kinds")
    parser.add_argument("--quiet-seconds", type=float, default=0.2)
    parser.add_argument("--interval-ms", type=float, default=10.0)
    parser.add_argument("--report", type=Path, default=Path("build/cut-report.json"))
    try:
        return asyncio.run(run(parser.parse_args()))
    except CommandFailed as failed:
        sys.stderr.write(f"{failed}\n")
        return failed.exit_code


if __name__ == "__main__":
    sys.exit(main())
