"""Elect a leader that is not in sync: `tidemark elect TOPIC PARTITION BROKER`.

It is for partitions without an in-sync replica; records that only other brokers have are lost. The
command writes the annotation tidemark.dev/elect of the Topic, for the partition's present leader
epoch only; the Topic's condition reports afterwards what was lost.
"""

import argparse

from tidemark_client.errors import EXIT_OK, EXIT_USAGE, CommandFailed, not_found
from tidemark_client.metadata import NO_LEADER, PartitionView

from tidemark_cli.commands.status import cluster_status
from tidemark_cli.commands.topic_objects import find_topic, topic_name
from tidemark_cli.objects import patch_object
from tidemark_cli.output import Output

HELP = (
    "choose the leader of a partition that has none; records that only other replicas have are lost"
)
ELECT_ANNOTATION = "tidemark.dev/elect"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", help="name of the topic, or metadata.name of the Topic")
    parser.add_argument("partition", type=int)
    parser.add_argument("broker", type=int, help="ID of a live replica of the partition")


async def run(arguments: argparse.Namespace, output: Output) -> int:
    item = await find_topic(arguments, arguments.topic)
    name, object_name = topic_name(item), str(item["metadata"]["name"])
    status = await cluster_status(arguments, with_high_watermarks=False)
    topic = status.topic_of_object(object_name)
    views = topic.partitions if topic is not None else ()
    view = next((view for view in views if view.partition == arguments.partition), None)
    if view is None:
        raise not_found("Partition", f"{name}-{arguments.partition}", _names(name, views))
    if view.leader != NO_LEADER or arguments.broker not in view.replicas:
        raise CommandFailed(
            f"{name}-{view.partition} needs no unclean election: {_found(view)}",
            expected=f"{name}-{arguments.partition} without a leader and with broker "
            f"{arguments.broker} among its replicas",
            found=_found(view),
            to_do="run `tidemark status`; an in-sync or eligible replica is elected automatically",
            exit_code=EXIT_USAGE,
        )
    choice = f"{view.partition}={arguments.broker}@{view.leader_epoch}"
    patch = {"metadata": {"annotations": {ELECT_ANNOTATION: choice}}}
    await patch_object(arguments, "Topic", object_name, patch)
    output.result(
        {"elect": choice},
        lambda console: console.print(
            f"broker {arguments.broker} will be elected leader of {name}-{view.partition}; "
            "afterwards the Topic's condition Attention shows the lost records"
        ),
    )
    return EXIT_OK


def _names(name: str, views: tuple[PartitionView, ...]) -> list[str]:
    return [f"{name}-{view.partition}" for view in views]


def _found(view: PartitionView) -> str:
    leader = "no leader" if view.leader == NO_LEADER else f"leader {view.leader}"
    return f"{leader}, replicas {','.join(map(str, view.replicas))}"
