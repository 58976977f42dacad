"""`tidemark topics`: the topics of a cluster with their partitions' health in one line each."""

import argparse

from tidemark_cli.commands.status import cluster_status
from tidemark_cli.failures import EXIT_OK
from tidemark_cli.metadata import NO_LEADER, TopicView
from tidemark_cli.output import Output, table

HELP = "list topics"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


async def run(arguments: argparse.Namespace, output: Output) -> int:
    status = await cluster_status(arguments)
    rows = [_row(topic) for topic in status.topics]
    columns = ("topic", "partitions", "replication", "in-sync", "under-replicated", "leaderless")
    output.result(
        [dict(zip(columns, row, strict=True)) for row in rows],
        lambda console: console.print(
            table(columns, rows) if rows else "no topics yet: tidemark apply -f topic.yaml"
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
