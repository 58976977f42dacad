"""`tidemark move TOPIC PARTITION --to 3,1,2`: other brokers for a partition, while it is served.

It writes spec.placement of the Topic; the operator does the rest, and `tidemark status` shows how
far it is.
"""

import argparse
from typing import Any

from tidemark_client.cluster_status import ClusterStatus
from tidemark_client.errors import EXIT_OK, EXIT_USAGE, CommandFailed
from tidemark_client.kubernetes_objects import Manifest

from tidemark_cli.commands.status import cluster_status
from tidemark_cli.commands.topic_objects import find_topic, pool_name, topic_name
from tidemark_cli.objects import patch_object
from tidemark_cli.output import Output

HELP = "move a partition to other brokers, or cancel a move"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", help="name of the topic, or metadata.name of the Topic")
    parser.add_argument("partition", type=int)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--to", metavar="IDS", help="IDs of the brokers, preferred leader first, such as 3,1,2"
    )
    where.add_argument("--cancel", action="store_true", help="cancel the move")


async def run(arguments: argparse.Namespace, output: Output) -> int:
    topic = await find_topic(arguments, arguments.topic)
    name = topic_name(topic)
    object_name = str(topic["metadata"]["name"])
    status = await cluster_status(arguments, with_high_watermarks=False)
    if arguments.cancel:
        replicas = _original(status, topic, name, arguments.partition)
    else:
        replicas = _broker_ids(arguments.to)
        status.check_brokers(pool_name(topic), replicas)
    entry = {"partition": arguments.partition, "replicas": replicas}
    others = [
        placed
        for placed in topic["spec"].get("placement", [])
        if placed["partition"] != arguments.partition
    ]
    placement: list[dict[str, Any]] = sorted([*others, entry], key=lambda each: each["partition"])
    await patch_object(arguments, "Topic", object_name, {"spec": {"placement": placement}})
    shown = ",".join(map(str, replicas))
    output.result(
        entry,
        lambda console: console.print(
            f"{name}-{arguments.partition} moves to brokers {shown}; see: tidemark status {name}"
        ),
    )
    return EXIT_OK


def _original(status: ClusterStatus, topic: Manifest, name: str, partition: int) -> list[int]:
    """Return the replicas before the move under way, or the present ones if it has not begun."""
    reported = status.topic_of_object(str(topic["metadata"]["name"]))
    views = reported.partitions if reported is not None else ()
    view = next((view for view in views if view.partition == partition), None)
    placed = [
        placed["replicas"]
        for placed in topic["spec"].get("placement", [])
        if placed["partition"] == partition
    ]
    if view is None or not (view.is_moving or placed not in ([], [list(view.replicas)])):
        raise CommandFailed(
            f"{name}-{partition} is not being moved.",
            expected=f"a move of {name}-{partition}",
            found="none",
            to_do="start a move with --to, or run `tidemark status`",
            exit_code=EXIT_USAGE,
        )
    return [broker_id for broker_id in view.replicas if broker_id not in view.adding]


def _broker_ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise CommandFailed(
            expected="broker IDs separated by commas, such as --to 3,1,2",
            found=repr(text),
            to_do="find the IDs with `tidemark status`",
            exit_code=EXIT_USAGE,
        )
    return [int(part) for part in parts]
