"""`tidemark topics`: `list` topics; `create`, `describe`, `alter`, `delete`, `purge` one.

What changes a topic writes its Topic object, as kubectl and Kafka's tools do.
"""

import argparse
from collections.abc import Awaitable, Callable
from typing import Any

from rich.console import Console
from tidemark_client.cluster_status import ready_condition
from tidemark_client.errors import EXIT_OK
from tidemark_client.kubernetes_objects import Manifest
from tidemark_client.metadata import NO_LEADER, TopicView

from tidemark_cli.arguments import add_target_arguments
from tidemark_cli.commands import topic_objects, topic_purge
from tidemark_cli.commands.status import cluster_status
from tidemark_cli.objects import list_objects
from tidemark_cli.output import Output, table

HELP = "list topics; create, describe, alter or delete one; purge retained data"

Action = Callable[[argparse.Namespace, Output], Awaitable[int]]
SENTENCES = {
    "list": "list the topics, also those that are not ready, same as `tidemark topics`",
    "create": "create a topic; commitRule and flush can be set by a manifest only",
    "describe": "show manifest, configs, partitions and conditions of a topic",
    "alter": "change configs, partitions or replication of a topic",
    "delete": "delete a topic. Data is kept unless deletionPolicy is Delete; --with-data deletes it"
    " in any case",
    "purge": (
        "delete the retained data of a deleted topic permanently; a topic with a Topic "
        "object is not touched"
    ),
}
OLD_KEYS = {"inSync": "in-sync", "underReplicated": "under-replicated"}  # until the next release


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--internal", action="store_true", help="list internal topics too")
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    for name, sentence in SENTENCES.items():
        # Without defaults of its own: options may stand before the action too.
        action = actions.add_parser(
            name, help=sentence, description=sentence, argument_default=argparse.SUPPRESS
        )
        action.add_argument("-o", "--output", choices=("human", "json"))
        add_target_arguments(action)
        if name == "list":
            action.add_argument("--internal", action="store_true", help="list internal topics too")
            continue
        if name == "purge":
            action.add_argument("topic", help="name of the deleted topic")
            action.add_argument("--yes", action="store_true", help="do not ask for confirmation")
            continue
        action.add_argument("topic", help="name of the topic, or metadata.name of the Topic")
        if name in ("create", "alter"):
            action.add_argument("--partitions", type=int, metavar="N")
            action.add_argument("--replication-factor", type=int, metavar="N")
            action.add_argument("--config", action="append", metavar="NAME=VALUE", dest="configs")
        if name == "create":
            action.add_argument("--deletion-policy", choices=("Retain", "Delete"))
            action.add_argument(
                "--no-wait", action="store_true", help="do not wait until the topic is ready"
            )
        if name == "alter":
            action.add_argument(
                "--delete-config",
                action="append",
                metavar="NAME",
                help="reset this config to its default",
            )
        if name == "delete":
            action.add_argument(
                "--with-data",
                action="store_true",
                help="delete the data whatever the deletionPolicy is",
            )


async def run(arguments: argparse.Namespace, output: Output) -> int:
    actions: dict[str, Action] = {
        "create": topic_objects.create,
        "describe": topic_objects.describe,
        "alter": topic_objects.alter,
        "delete": topic_objects.delete,
        "purge": topic_purge.purge,
    }
    action = actions.get(arguments.action or "list", _list)
    return await action(arguments, output)


async def _list(arguments: argparse.Namespace, output: Output) -> int:
    status = await cluster_status(arguments, with_high_watermarks=False)
    rows = listed(status.topics, await list_objects(arguments, "Topic"), pool=arguments.pool)
    rows = [row for row in rows if arguments.internal or not row["topic"].startswith("__")]
    has_pools = len({row["pool"] for row in rows}) > 1
    output.result(
        [row | {old: row[new] for new, old in OLD_KEYS.items()} for row in rows],
        lambda console: _draw(console, rows, has_pools=has_pools),
    )
    return EXIT_OK


def listed(
    views: tuple[TopicView, ...], items: list[Manifest], *, pool: str | None
) -> list[dict[str, Any]]:
    """Return a row per topic, and one per Topic object that is not served yet, with the reason."""
    of_items = {str(item["metadata"]["name"]): item for item in items}
    rows = [_row(view, of_items.get(view.object_name)) for view in views]
    known = {view.object_name for view in views}
    rows += [_row_of_object(item) for name, item in of_items.items() if name not in known]
    rows = [row for row in rows if pool in (None, row["pool"])]
    return sorted(rows, key=lambda row: (row["topic"], row["pool"], row["object"]))


def _row(topic: TopicView, item: Manifest | None) -> dict[str, Any]:
    views = topic.partitions
    replicas = sum(len(view.replicas) for view in views)
    in_sync = sum(len(view.in_sync_replicas) for view in views)
    is_led = all(view.leader != NO_LEADER for view in views)
    ready = ready_condition(item) if item is not None else None
    return {
        "topic": topic.topic,
        "object": topic.object_name or topic.topic,
        "pool": topic.pool,
        "partitions": len(views),
        "replication": max((len(view.replicas) for view in views), default=0),
        "inSync": f"{in_sync}/{replicas}",
        "underReplicated": sum(len(v.in_sync_replicas) < len(v.replicas) for v in views),
        "leaderless": sum(view.leader == NO_LEADER for view in views),
        "ready": is_led if ready is None or not is_led else ready.is_true,
        "reason": "" if ready is None or ready.is_true else ready.message,
    }


def _row_of_object(item: Manifest) -> dict[str, Any]:
    spec, ready = item["spec"], ready_condition(item)
    return {
        "topic": topic_objects.topic_name(item),
        "object": item["metadata"]["name"],
        "pool": topic_objects.pool_name(item),
        "partitions": spec.get("partitions", 0),
        "replication": spec.get("replicationFactor", 0),
        "inSync": "-",
        "underReplicated": 0,
        "leaderless": 0,
        "ready": False,
        "reason": ready.message if ready is not None else "it was just created",
    }


def _draw(console: Console, rows: list[dict[str, Any]], *, has_pools: bool) -> None:
    columns = {
        "topic": "topic",
        **({"pool": "pool"} if has_pools else {}),
        "partitions": "partitions",
        "replication": "replication",
        "inSync": "in-sync",
        "underReplicated": "under-replicated",
        "leaderless": "leaderless",
        "ready": "ready",
    }
    cells = [
        [("yes" if row[key] else "no") if key == "ready" else row[key] for key in columns]
        for row in rows
    ]
    if not rows:
        console.print("no topics yet: tidemark topics create NAME")
        return
    console.print(table(tuple(columns.values()), cells))
    for row in rows:
        if not row["ready"] and row["reason"]:
            console.print(f"Topic {row['object']} is not ready: {row['reason']}", markup=False)
