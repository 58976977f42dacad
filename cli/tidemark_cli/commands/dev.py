"""`tidemark dev`: controller and brokers as processes of this machine, until Ctrl-C.

Thin: the local mode itself is `tidemark_operator.manager.local`.
"""

import argparse
import importlib
from pathlib import Path
from typing import cast

from tidemark_client.errors import EXIT_USAGE, CommandFailed

from tidemark_cli.output import Output

HELP = "run a cluster of processes on this machine"
MAX_PORT = 65_535
MAX_BROKERS = 100  # the ports of the next pool begin after them
PORT_HELP = (
    "{0} port of broker 0; broker N uses port+N, each further pool starts 100 higher (default {1})"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--brokers", type=int, default=3, help="number of brokers (default 3)")
    parser.add_argument(
        "--data-dir", type=Path, default=Path("tidemark-data"), help="default: ./tidemark-data"
    )
    parser.add_argument(
        "--http-port", type=int, default=18080, help=PORT_HELP.format("HTTP", 18080)
    )
    parser.add_argument(
        "--kafka-port", type=int, default=19092, help=PORT_HELP.format("Kafka", 19092)
    )
    parser.add_argument("--controller-port", type=int, default=17070, help="default 17070")
    parser.add_argument(
        "--tls", action="store_true", help="encrypt and authenticate all connections (TLS)"
    )
    parser.add_argument(
        "--replication-port",
        type=int,
        default=20092,
        help=PORT_HELP.format("with --tls: replication", 20092),
    )
    parser.add_argument(
        "--certificate-life-seconds",
        type=int,
        default=0,
        help="with --tls: life of certificates, which are renewed after a third of it "
        "(default 3 days)",
    )
    parser.add_argument(
        "--proxy-port",
        type=int,
        help="first port of proxies between controller and brokers, which `tidemark chaos` starts "
        "for network faults",
    )
    parser.add_argument(
        "--actions",
        action="store_true",
        help="let the live page elect leaders, drain and kill brokers",
    )
    parser.add_argument(
        "--auth",
        action="store_true",
        help="require clients to authenticate; the token of each user is in the data directory",
    )
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
    """Check the arguments, then hand the process over to local mode and its event loop."""
    del output
    for manifest in arguments.manifests:
        if not manifest.is_file():
            raise CommandFailed(
                f"File {manifest} not found.",
                expected="a manifest file",
                found=f"no file {manifest}",
                to_do="check the path given with -f",
                exit_code=EXIT_USAGE,
            )
    if not 1 <= arguments.brokers <= MAX_BROKERS:
        raise CommandFailed(
            expected=f"--brokers from 1 to {MAX_BROKERS}",
            found=str(arguments.brokers),
            to_do="choose a number in this range",
            exit_code=EXIT_USAGE,
        )
    if arguments.auth and arguments.proxy_port is not None:
        raise CommandFailed(
            expected="--auth without --proxy-port",
            found="both",
            to_do="leave one out: the workload of `tidemark chaos` sends no tokens",
            exit_code=EXIT_USAGE,
        )
    _check_ports(arguments)
    local = importlib.import_module("tidemark_operator.manager.local.main")
    settings = local.LocalSettings(
        brokers=arguments.brokers,
        data_dir=arguments.data_dir,
        http_port=arguments.http_port,
        kafka_port=arguments.kafka_port,
        controller_port=arguments.controller_port,
        manifests=tuple(arguments.manifests),
        replication_port=arguments.replication_port if arguments.tls else 0,
        certificate_life_s=arguments.certificate_life_seconds,
        has_actions=arguments.actions,
        authenticates=arguments.auth,
    )
    return cast(int, local.run_local(settings, proxy_port=arguments.proxy_port))


def _check_ports(arguments: argparse.Namespace) -> None:
    """Check that no two ports are equal: two for each broker, and one for the controller."""
    wanted: dict[int, str] = {}
    rows = [
        ("--controller-port", arguments.controller_port, 1),
        ("--http-port", arguments.http_port, arguments.brokers),
        ("--kafka-port", arguments.kafka_port, arguments.brokers),
    ]
    if arguments.tls:
        rows.append(("--replication-port", arguments.replication_port, arguments.brokers))
    for option, first, count in rows:
        if first < 1 or first + count - 1 > MAX_PORT:
            raise CommandFailed(
                expected=f"{option} from 1 to {MAX_PORT - count + 1}",
                found=str(first),
                to_do="choose another port; the port of each further broker is one higher",
                exit_code=EXIT_USAGE,
            )
        for port in range(first, first + count):
            if port in wanted:
                raise CommandFailed(
                    expected="distinct ports for the controller and for each broker",
                    found=f"port {port} for {wanted[port]} and {option}",
                    to_do="choose ports further apart: the port of each further broker is one "
                    "higher",
                    exit_code=EXIT_USAGE,
                )
            wanted[port] = option
