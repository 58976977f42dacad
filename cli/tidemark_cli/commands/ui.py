"""Open the live ISR page: `tidemark ui`, or `kubectl tidemark ui`.

In local mode that is an address of `tidemark dev`. On Kubernetes `kubectl port-forward` brings the
operator's port to this machine until Ctrl-C, again to another pod when its pod is gone; a standby
forwards to the leader.
"""

import argparse
import asyncio
import webbrowser
from urllib.parse import quote

from tidemark_client.errors import EXIT_OK, EXIT_USAGE, CommandFailed
from tidemark_client.kubernetes_objects import KubernetesObjects
from tidemark_client.port_forward import forwarded
from tidemark_client.targets import Target, find_target

from tidemark_cli.interrupts import until_interrupted
from tidemark_cli.objects import object_namespace
from tidemark_cli.output import Output

HELP = "open the live page of in-sync sets in a browser"
PAGE_PATH = "/ui/"
AGAIN_SECONDS = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        type=int,
        default=0,
        metavar="N",
        help="local port on Kubernetes (default: a free one)",
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address, and open no browser"
    )


async def run(arguments: argparse.Namespace, output: Output) -> int:
    target = await find_target(arguments)
    if target.controller_url:
        await _show(arguments, output, target.controller_url)
        return EXIT_OK
    if not target.is_kubernetes:
        raise CommandFailed(
            f"No controller at {target.broker_urls[0]}, and brokers do not serve the page.",
            expected="the address of a running controller, or a kubeconfig",
            found="no status of a controller there",
            to_do="name the address that `tidemark dev` prints as `controller`, or leave --server"
            " out",
            exit_code=EXIT_USAGE,
        )
    forwarding = _forward(arguments, output, target)
    return await until_interrupted(forwarding, "The port is not forwarded any more: SIGTERM.")


async def _show(arguments: argparse.Namespace, output: Output, address: str) -> None:
    url = address + PAGE_PATH
    if arguments.pool is not None:
        pool = f"{await object_namespace(arguments)}/{arguments.pool}"
        url += f"?pool={quote(pool, safe='/')}"
    output.result({"url": url}, lambda console: console.print(url, markup=False))
    if not arguments.no_browser and not output.is_json:
        await asyncio.to_thread(webbrowser.open, url)


async def _forward(arguments: argparse.Namespace, output: Output, target: Target) -> int:
    port, is_shown = arguments.port, False
    while True:
        async with await KubernetesObjects.connect(target.kube_context, arguments.namespace) as at:
            namespace, pod = (await at.operator_pods())[0]
        async with forwarded(target.kube_context, namespace, pod, port=port) as there:
            port = there.port
            if not is_shown:
                is_shown = True
                await _show(arguments, output, there.url)
            await there.process.wait()
            output.remark(f"pod {pod} is gone, connecting to another one")
            await asyncio.sleep(AGAIN_SECONDS)
