"""`tidemark apply -f FILE`: manifests to local mode's controller or to the Kubernetes API server.

Local mode checks them against the same schemas and rules as the CRDs do; the sentences come from
there, not from here.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from rich.console import Console
from tidemark_client.errors import EXIT_OK, EXIT_USAGE, CommandFailed
from tidemark_client.kubernetes_objects import Applied, KubernetesObjects
from tidemark_client.local_brokers import LOCAL_CONTROLLER_URL
from tidemark_client.manifests import MAX_MANIFEST_BYTES, apply_at_controller, read_manifests
from tidemark_client.targets import find_target

from tidemark_cli.output import Output

HELP = "create or change topics and broker pools from manifests"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--file",
        dest="files",
        action="append",
        required=True,
        metavar="FILE",
        help="YAML manifests, repeatable; - is stdin",
    )


async def run(arguments: argparse.Namespace, output: Output) -> int:
    text = "\n---\n".join(_read(name) for name in arguments.files)
    manifests = read_manifests(text)
    target = await find_target(arguments)
    if target.controller_url:
        applied = await apply_at_controller(target.controller_url, manifests)
    elif target.is_kubernetes:
        objects = await KubernetesObjects.connect(target.kube_context, arguments.namespace)
        async with objects:
            applied = [await objects.apply(manifest) for manifest in manifests]
    else:
        raise CommandFailed(
            expected="the controller of a local cluster, or a kubeconfig context",
            found=f"a broker at {target.broker_urls[0]}, which takes no manifests",
            to_do=f"name the controller: --server {LOCAL_CONTROLLER_URL}, or use --context",
            exit_code=EXIT_USAGE,
        )
    for entry in applied:
        output.result(entry, partial(_draw, entry))
    return EXIT_OK


def _draw(applied: Applied, console: Console) -> None:
    console.print(f"{applied.kind.lower()}/{applied.name} {applied.action}")


def _read(name: str) -> str:
    if name == "-":
        return sys.stdin.read(MAX_MANIFEST_BYTES)
    try:
        with Path(name).open(encoding="utf-8") as file:
            return file.read(MAX_MANIFEST_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(
            expected=f"a readable manifest {name}",
            found=str(error),
            to_do="check the path given with -f",
            exit_code=EXIT_USAGE,
        ) from error
