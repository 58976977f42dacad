"""`tidemark drain BROKER`: every replica of a broker moves to others, while all is served.

It writes spec.drain of the BrokerPool. To remove the broker for good lower spec.replicas instead
(brokers with the highest ids go); both wait until the broker holds nothing.
"""

import argparse

from tidemark_cli.commands.status import cluster_status
from tidemark_cli.failures import EXIT_OK
from tidemark_cli.objects import patch_object, read_object
from tidemark_cli.output import Output

HELP = "move all replicas of a broker to others"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("broker", type=int, help="the broker's id")
    parser.add_argument("--pool", default="default", help="its BrokerPool (default: default)")
    parser.add_argument("--undo", action="store_true", help="let replicas be placed there again")


async def run(arguments: argparse.Namespace, output: Output) -> int:
    pool = await read_object(arguments, "BrokerPool", arguments.pool)
    if not arguments.undo:
        (await cluster_status(arguments)).check_brokers(arguments.pool, [arguments.broker])
    drained = set(pool["spec"].get("drain", []))
    drained = drained - {arguments.broker} if arguments.undo else drained | {arguments.broker}
    patch = {"spec": {"drain": sorted(drained)}}
    await patch_object(arguments, "BrokerPool", arguments.pool, patch)
    what = "may hold replicas again" if arguments.undo else "is to be emptied; see: tidemark status"
    output.result(
        {"pool": arguments.pool, "drain": sorted(drained)},
        lambda console: console.print(f"broker {arguments.broker} of {arguments.pool} {what}"),
    )
    return EXIT_OK
