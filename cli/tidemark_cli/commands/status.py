"""`tidemark status`: every partition's leader, epoch, ISR and replicas; every broker's state; and
the conditions of Topics and BrokerPools that somebody should look at.
"""

import argparse
import asyncio
from dataclasses import replace

from rich.console import Console

from tidemark_cli.client import TidemarkClient
from tidemark_cli.cluster_status import BrokerRow, ClusterStatus
from tidemark_cli.failures import EXIT_OK, CommandFailed
from tidemark_cli.kubernetes_objects import KubernetesObjects
from tidemark_cli.leader_lookup import NobodyAnswers
from tidemark_cli.metadata import NO_LEADER, PartitionView, TopicView, UnreadableAnswer
from tidemark_cli.objects import list_objects
from tidemark_cli.open_conditions import OpenCondition, open_conditions
from tidemark_cli.outcomes import BrokerRefused
from tidemark_cli.output import Output, table
from tidemark_cli.targets import Target, find_target

OFFSETS_TOPIC = "__consumer_offsets"
HELP = "show partitions (leader, epoch, ISR, high watermark), brokers, and what needs a look"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", nargs="?", help="only this topic")


async def run(arguments: argparse.Namespace, output: Output) -> int:
    status = await cluster_status(arguments)
    if arguments.topic:
        topic = status.topic(arguments.topic)
        if topic is None:
            raise CommandFailed(
                expected=f"a topic named {arguments.topic!r}",
                found=", ".join(topic.topic for topic in status.topics) or "no topics",
                to_do="check the name with `tidemark topics`",
            )
        status = ClusterStatus(status.brokers, (topic,))
    status = replace(status, conditions=await _open_conditions(arguments, arguments.topic))
    shown = status if arguments.topic else _without_quiet_internals(status)
    output.result(status, lambda console: _draw(console, shown))
    return EXIT_OK


def _without_quiet_internals(status: ClusterStatus) -> ClusterStatus:
    """The many partitions of the offsets topic, for people, only where one needs a look."""
    topics = []
    for topic in status.topics:
        views = topic.partitions
        if topic.topic == OFFSETS_TOPIC:
            views = tuple(view for view in views if not view.is_fully_in_sync)
        topics.append(TopicView(topic.topic, views))
    return replace(status, topics=tuple(topics))


async def _open_conditions(
    arguments: argparse.Namespace, only_topic: str | None
) -> tuple[OpenCondition, ...]:
    topics = [
        item
        for item in await list_objects(arguments, "Topic")
        if only_topic in (None, item["metadata"]["name"], item["spec"].get("topicName"))
    ]
    pools = await list_objects(arguments, "BrokerPool")
    return (*open_conditions("Topic", topics), *open_conditions("BrokerPool", pools))


async def cluster_status(arguments: argparse.Namespace) -> ClusterStatus:
    """From the controller, the brokers or the Kubernetes API, whatever was found."""
    target = await find_target(arguments)
    if target.is_kubernetes:
        objects = await KubernetesObjects.connect(target.kube_context, arguments.namespace)
        async with objects:
            return await objects.cluster_status()
    if target.broker_urls:
        return await _status_of_brokers(target)
    if not target.status.has_controller:
        raise CommandFailed(
            expected="a controller that leads",
            found=f"{target.controller_url} does not: it holds no Lease yet, or lost it",
            to_do="try again in a few seconds; else read its log (a full disk? in local mode it is"
            " logs/operator.log in the data directory)",
        )
    return target.status


async def _status_of_brokers(target: Target) -> ClusterStatus:
    """Brokers know the high watermarks; the controller, where there is one, the brokers' states."""
    try:
        async with TidemarkClient(target.broker_urls) as client:
            urls = await client.brokers()
            topics = tuple(
                [
                    await _with_high_watermarks(client, await client.topic(name))
                    for name in sorted(await client.topics())
                ]
            )
    except NobodyAnswers as error:
        if target.status.brokers:
            return target.status
        raise CommandFailed(
            expected="a broker that answers",
            found=str(error),
            to_do="check the address, and that the brokers run",
        ) from error
    topics = tuple(_with_moves(topic, target.status.topic(topic.topic)) for topic in topics)
    brokers = target.status.brokers or tuple(
        BrokerRow(broker_id, "-", http_url=url) for broker_id, url in sorted(urls.items())
    )
    return ClusterStatus(brokers, topics)


def _with_moves(topic: TopicView, told: TopicView | None) -> TopicView:
    """Only the controller tells who is being added and removed."""
    known = {view.partition: view for view in told.partitions} if told is not None else {}

    def with_moves(view: PartitionView) -> PartitionView:
        moving = known.get(view.partition, view)
        return replace(view, adding=moving.adding, removing=moving.removing)

    return TopicView(topic.topic, tuple(with_moves(view) for view in topic.partitions))


async def _with_high_watermarks(client: TidemarkClient, topic: TopicView) -> TopicView:
    """Each leader is asked; a partition whose leader does not answer keeps -1."""

    async def ask(view: PartitionView) -> PartitionView:
        if view.leader == NO_LEADER:
            return view
        try:
            offsets = await client.offsets(topic.topic, view.partition)
        except (BrokerRefused, UnreadableAnswer):
            return view
        return replace(view, high_watermark=offsets.high_watermark)

    partitions = await asyncio.gather(*(ask(view) for view in topic.partitions))
    return TopicView(topic.topic, tuple(partitions))


def _draw(console: Console, status: ClusterStatus) -> None:
    partitions = [
        (
            topic.topic,
            view.partition,
            "none" if view.leader == NO_LEADER else view.leader,
            view.leader_epoch,
            _ids(view.in_sync_replicas),
            _replicas(view),
            "-" if view.high_watermark < 0 else view.high_watermark,
        )
        for topic in status.topics
        for view in topic.partitions
    ]
    columns = ("topic", "partition", "leader", "epoch", "isr", "replicas", "high watermark")
    console.print(table(columns, partitions) if partitions else "no partitions")
    console.print()
    brokers = [
        (row.broker_id, row.state, _epoch(row), row.http_url or "-", row.rack or "-")
        for row in status.brokers
    ]
    console.print(table(("broker", "state", "epoch", "address", "rack"), brokers))
    if status.conditions:
        console.print()
        console.print("TO LOOK AT", style="bold")
    for condition in status.conditions:
        console.print(str(condition), markup=False)


def _epoch(row: BrokerRow) -> str:
    return "-" if row.broker_epoch < 0 else str(row.broker_epoch)


def _replicas(view: PartitionView) -> str:
    """While it moves: `3,1,2,0 (+3 -0)`."""
    changes = [f"+{each}" for each in view.adding] + [f"-{each}" for each in view.removing]
    return _ids(view.replicas) + (f" ({' '.join(changes)})" if changes else "")


def _ids(broker_ids: tuple[int, ...]) -> str:
    return ",".join(str(broker_id) for broker_id in broker_ids) or "none"
