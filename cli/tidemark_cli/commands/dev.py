"""`tidemark dev`: controller and brokers as processes of this machine, until Ctrl-C.

Thin: the local mode itself is `tidemark_operator.local`.
"""

import argparse
import importlib
from pathlib import Path
from typing import cast

from tidemark_cli.failures import EXIT_USAGE, CommandFailed
from tidemark_cli.output import Output

HELP = "run a cluster of processes on this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--brokers", type=int, default=3, help="how many (default 3)")
    parser.add_argument(
        "--data-dir", type=Path, default=Path("tidemark-data"), help="default: ./tidemark-data"
    )
    parser.add_argument("--http-port", type=int, default=18080, help="of broker 0; others follow")
    parser.add_argument("--kafka-port", type=int, default=19092, help="of broker 0; others follow")
    parser.add_argument("--controller-port", type=int, default=17070)
    parser.add_argument(
        "-f",
        "--file",
        type=Path,
        action="append",
        default=[],
        dest="manifests",
        help="manifests to apply at start, repeatable",
    )


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Checks the arguments, then hands the process over to local mode and its event loop."""
    del output
    for manifest in arguments.manifests:
        if not manifest.is_file():
            raise CommandFailed(
                expected="a manifest file",
                found=f"{manifest} is not there",
                to_do="check the path given with -f",
                exit_code=EXIT_USAGE,
            )
    if arguments.brokers < 1:
        raise CommandFailed(
            expected="--brokers of at least 1",
            found=str(arguments.brokers),
            to_do="ask for one broker or more",
            exit_code=EXIT_USAGE,
        )
    local = importlib.import_module("tidemark_operator.local.main")
    return cast(
        int,
        local.run_local(
            brokers=arguments.brokers,
            data_dir=arguments.data_dir,
            http_port=arguments.http_port,
            kafka_port=arguments.kafka_port,
            controller_port=arguments.controller_port,
            manifests=list(arguments.manifests),
        ),
    )
