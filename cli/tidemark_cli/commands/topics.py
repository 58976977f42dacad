"""`tidemark topics`: the topics of a cluster, and `create`, `describe`, `alter`, `delete` of one.

What changes a topic writes its Topic object, as kubectl and Kafka's tools do.
"""

import argparse
from collections.abc import Awaitable, Callable

from tidemark_cli.commands import topic_objects
from tidemark_cli.commands.status import cluster_status
from tidemark_cli.failures import EXIT_OK
from tidemark_cli.metadata import NO_LEADER, TopicView
from tidemark_cli.output import Output, table
from tidemark_cli.targets import add_target_arguments

HELP = "list topics; create, describe, alter or delete one"

Action = Callable[[argparse.Namespace, Output], Awaitable[int]]
ACTIONS: dict[str, Action] = {
    "create": topic_objects.create,
    "describe": topic_objects.describe,
    "alter": topic_objects.alter,
    "delete": topic_objects.delete,
}
SENTENCES = {
    "create": "make a topic; commitRule and flush, which never change, only a manifest can choose",
    "describe": "all that is known of a topic: manifest, configs, partitions, conditions",
    "alter": "change configs, partitions or replication of a topic",
    "delete": "delete a topic; its data stays unless its deletionPolicy, or --with-data, says not",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    for name, sentence in SENTENCES.items():
        # Without defaults of its own: options may stand before the action too.
        action = actions.add_parser(
            name, help=sentence, description=sentence, argument_default=argparse.SUPPRESS
        )
        action.add_argument("topic", help="its name, or metadata.name of the Topic")
        action.add_argument("-o", "--output", choices=("human", "json"))
        add_target_arguments(action)
        if name in ("create", "alter"):
            action.add_argument("--partitions", type=int, metavar="N")
            action.add_argument("--replication-factor", type=int, metavar="N")
            action.add_argument("--config", action="append", metavar="NAME=VALUE", dest="configs")
        if name == "create":
            action.add_argument("--pool", help="the BrokerPool (default: default)")
            action.add_argument("--deletion-policy", choices=("Retain", "Delete"))
        if name == "alter":
            action.add_argument(
                "--delete-config", action="append", metavar="NAME", help="back to its default"
            )
        if name == "delete":
            action.add_argument("--with-data", action="store_true", help="whatever it says")


async def run(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.action is not None:
        return await ACTIONS[arguments.action](arguments, output)
    status = await cluster_status(arguments)
    rows = [_row(topic) for topic in status.topics]
    columns = ("topic", "partitions", "replication", "in-sync", "under-replicated", "leaderless")
    output.result(
        [dict(zip(columns, row, strict=True)) for row in rows],
        lambda console: console.print(
            table(columns, rows) if rows else "no topics yet: tidemark topics create NAME"
        ),
    )
    return EXIT_OK


def _row(topic: TopicView) -> tuple[str, int, int, str, int, int]:
    views = topic.partitions
    replicas = sum(len(view.replicas) for view in views)
    in_sync = sum(len(view.in_sync_replicas) for view in views)
    return (
        topic.topic,
        len(views),
        max((len(view.replicas) for view in views), default=0),
        f"{in_sync}/{replicas}",
        sum(len(view.in_sync_replicas) < len(view.replicas) for view in views),
        sum(view.leader == NO_LEADER for view in views),
    )
