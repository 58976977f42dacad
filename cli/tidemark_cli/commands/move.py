"""`tidemark move TOPIC PARTITION --to 3,1,2`: other brokers for a partition, while it is served.

It writes spec.placement of the Topic; the operator does the rest, and `tidemark status` shows how
far it is.
"""

import argparse
from typing import Any

from tidemark_cli.commands.status import cluster_status
from tidemark_cli.failures import EXIT_OK, EXIT_USAGE, CommandFailed
from tidemark_cli.output import Output
from tidemark_cli.patches import patch_object, read_object

HELP = "move a partition to other brokers, or turn such a move back"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", help="metadata.name of the Topic")
    parser.add_argument("partition", type=int)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--to", metavar="IDS", help="broker ids, the preferred leader first, such as 3,1,2"
    )
    where.add_argument("--cancel", action="store_true", help="back to where it was")


async def run(arguments: argparse.Namespace, output: Output) -> int:
    topic = await read_object(arguments, "Topic", arguments.topic)
    name = str(topic["spec"].get("topicName") or arguments.topic)
    if arguments.cancel:
        replicas = await _original(arguments, name)
    else:
        replicas = _broker_ids(arguments.to)
    entry = {"partition": arguments.partition, "replicas": replicas}
    others = [
        placed
        for placed in topic["spec"].get("placement", [])
        if placed["partition"] != arguments.partition
    ]
    placement: list[dict[str, Any]] = sorted([*others, entry], key=lambda each: each["partition"])
    await patch_object(arguments, "Topic", arguments.topic, {"spec": {"placement": placement}})
    shown = ",".join(map(str, replicas))
    output.result(
        entry,
        lambda console: console.print(
            f"{name}-{arguments.partition} moves to brokers {shown}; see: tidemark status {name}"
        ),
    )
    return EXIT_OK


async def _original(arguments: argparse.Namespace, name: str) -> list[int]:
    topic = (await cluster_status(arguments)).topic(name)
    views = topic.partitions if topic is not None else ()
    view = next((view for view in views if view.partition == arguments.partition), None)
    if view is None or not view.is_moving:
        raise CommandFailed(
            expected=f"{name}-{arguments.partition} to be moving",
            found="it does not move",
            to_do="move it with --to, or look at `tidemark status`",
            exit_code=EXIT_USAGE,
        )
    return [broker_id for broker_id in view.replicas if broker_id not in view.adding]


def _broker_ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise CommandFailed(
            expected="broker ids separated by commas, such as --to 3,1,2",
            found=repr(text),
            to_do="take the ids from `tidemark status`",
            exit_code=EXIT_USAGE,
        )
    return [int(part) for part in parts]
