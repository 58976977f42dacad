"""Print the cluster's status: `tidemark status`.

It shows every partition's leader, epoch, ISR and replicas, every broker's state, and the conditions
of Topics and BrokerPools that need attention. `--check` exits with 0 if all is well and 1
otherwise; `--watch` prints it again and again. Internal topics (`__consumer_offsets`) are one line,
and only where they need attention, unless --internal or their name asks for them.
"""

import argparse
import asyncio
from dataclasses import replace

from rich.console import Console
from tidemark_client.client import TidemarkClient
from tidemark_client.cluster_status import (
    BrokerRow,
    ClusterStatus,
    OpenCondition,
    open_conditions,
    read_broker_rows,
)
from tidemark_client.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, CommandFailed, not_found
from tidemark_client.kubernetes_objects import KubernetesObjects
from tidemark_client.leader_lookup import NoResponse
from tidemark_client.metadata import NO_LEADER, PartitionView, TopicView, UnreadableResponse
from tidemark_client.outcomes import BrokerError
from tidemark_client.targets import Target, find_api, find_target, uptime_ms
from tidemark_protocol.condition_reasons import LASTING_REASONS

from tidemark_cli.objects import list_objects
from tidemark_cli.output import Output, table

HELP = "show partitions (leader, epoch, ISR, high watermark), brokers, and what needs attention"
WATCH_SECONDS = 2.0
MAX_WATCH_SECONDS = 3600.0
START_GRACE_MS = 60_000  # the controller advises no unclean election before


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", nargs="?", help="show only this topic")
    parser.add_argument("--internal", action="store_true", help="show internal topics too")
    parser.add_argument(
        "--check",
        action="store_true",
        help="exit with 1 unless all brokers are up and all partitions have a leader and all "
        "replicas in sync",
    )
    parser.add_argument(
        "--watch",
        type=float,
        nargs="?",
        const=WATCH_SECONDS,
        metavar="SECONDS",
        help=f"refresh every SECONDS (default {WATCH_SECONDS:g}), until Ctrl-C",
    )


async def run(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.watch is None:
        return await _show(arguments, output)
    if not 0 < arguments.watch <= MAX_WATCH_SECONDS or arguments.check:
        raise CommandFailed(
            expected=f"--watch above 0, up to {MAX_WATCH_SECONDS:g}, and without --check",
            found=f"--watch {arguments.watch:g}{' --check' if arguments.check else ''}",
            to_do="for scripts use --check in a loop",
            exit_code=EXIT_USAGE,
        )
    while True:
        if not output.is_json and output.console.is_terminal:
            output.console.clear()
        await _show(arguments, output)
        await asyncio.sleep(arguments.watch)


async def _show(arguments: argparse.Namespace, output: Output) -> int:
    status = await cluster_status(arguments)
    if arguments.pool is not None:
        if arguments.pool not in status.pools:
            raise not_found("BrokerPool", arguments.pool, status.pools)
        status = status.of_pool(arguments.pool)
    if arguments.topic:
        topics = tuple(view for view in status.topics if view.topic == arguments.topic)
        if not topics:
            raise not_found("Topic", arguments.topic, [view.topic for view in status.topics])
        brokers = tuple(r for r in status.brokers if r.pool in {v.pool for v in topics})
        status = ClusterStatus(brokers, topics)
    status = replace(status, conditions=await _open_conditions(arguments, arguments.topic))
    is_young = status.is_starting and await _is_young(arguments)
    output.result(status, lambda console: draw(console, status, arguments, is_young=is_young))
    return EXIT_FAILED if arguments.check and problems(status) else EXIT_OK


async def _is_young(arguments: argparse.Namespace) -> bool:
    """Return whether this `tidemark dev` has just begun: brokers that are down are starting."""
    uptime = await uptime_ms(await find_api(arguments))
    return uptime is not None and uptime < START_GRACE_MS


def problems(status: ClusterStatus) -> list[str]:
    """Return the reasons why `--check` fails; empty if the cluster is healthy."""
    found = [str(condition) for condition in status.conditions if condition.type != "Moving"]
    found += [
        f"broker {row.broker_id} is {row.state}"
        for row in status.brokers
        if row.state not in ("Active", "Gone", "-")
    ]
    if not status.brokers:
        found.append("no brokers")
    found += [
        f"{view.topic}-{each.partition} has no leader, or not all replicas in sync"
        for view in status.topics
        for each in view.partitions
        if not each.is_fully_in_sync
    ]
    return found


async def _open_conditions(
    arguments: argparse.Namespace, only_topic: str | None
) -> tuple[OpenCondition, ...]:
    topics = [
        item
        for item in await list_objects(arguments, "Topic")
        if only_topic in (None, item["metadata"]["name"], item["spec"].get("topicName"))
        and arguments.pool in (None, item["spec"].get("brokerPool", "default"))
    ]
    pools = [
        item
        for item in await list_objects(arguments, "BrokerPool")
        if arguments.pool in (None, item["metadata"]["name"])
    ]
    return (*open_conditions("Topic", topics), *open_conditions("BrokerPool", pools))


async def cluster_status(
    arguments: argparse.Namespace, *, with_high_watermarks: bool = True
) -> ClusterStatus:
    """Read the status from the controller, the brokers or the Kubernetes API."""
    target = await find_target(arguments)
    if target.is_kubernetes:
        objects = await KubernetesObjects.connect(target.kube_context, arguments.namespace)
        async with objects:
            return await objects.cluster_status()
    if not target.controller_url:
        return await _status_of_brokers(target)
    if not target.status.has_controller:
        raise CommandFailed(
            "No active controller.",
            expected="an active controller",
            found=f"{target.controller_url} is not the leader",
            to_do="try again in a few seconds; if it persists, read the operator's log (in local "
            "mode logs/operator.log in the data directory) and check for a full disk",
        )
    if not with_high_watermarks:
        return target.status
    return await _with_watermarks_of_pools(target.status)


async def _with_watermarks_of_pools(status: ClusterStatus) -> ClusterStatus:
    """Leaders know the high watermarks; each pool's brokers know that pool's topics only."""
    topics: list[TopicView] = []
    for pool in status.pools:
        mine = status.of_pool(pool)
        if not mine.active_urls:
            topics += mine.topics
            continue
        async with TidemarkClient(mine.active_urls) as client:
            for view in mine.topics:
                topics.append(view if view.is_internal else await _with_marks(client, view))
    return replace(status, topics=tuple(topics))


async def _status_of_brokers(target: Target) -> ClusterStatus:
    """Build a status from what brokers know of each other and of topics, without a controller."""
    try:
        async with TidemarkClient(target.broker_urls) as client:
            rows = read_broker_rows(await client.lookup.ask("/brokers"))
            topics = [
                replace(await _with_marks(client, await client.topic(name)), pool=rows[0].pool)
                for name in sorted(await client.topics())
                if rows  # a broker and what it knows are of one pool
            ]
    except NoResponse as error:
        raise CommandFailed(
            "No broker responds.",
            expected="a broker that responds",
            found=str(error),
            to_do="check the address and whether the brokers run",
        ) from error
    return ClusterStatus(rows, tuple(topics))


async def _with_marks(client: TidemarkClient, topic: TopicView) -> TopicView:
    """Ask each leader for its high watermark; without an answer it stays -1."""

    async def ask(view: PartitionView) -> PartitionView:
        if view.leader == NO_LEADER:
            return view
        try:
            offsets = await client.offsets(topic.topic, view.partition)
        except (BrokerError, UnreadableResponse, NoResponse):
            return view
        return replace(view, high_watermark=offsets.high_watermark)

    partitions = await asyncio.gather(*(ask(view) for view in topic.partitions))
    return replace(topic, partitions=tuple(partitions))


def draw(
    console: Console, status: ClusterStatus, arguments: argparse.Namespace, *, is_young: bool
) -> None:
    """`is_young`: conditions that brokers mend by coming up are left out."""
    if status.is_starting:
        console.print(f"{'starting: ' * is_young}{status.starting_sentence}", style="bold")
        console.print()
    shows_all = arguments.internal or arguments.topic
    shown = [view for view in status.topics if shows_all or not view.is_internal]
    has_pools = len(status.pools) > 1
    partitions = [
        (
            topic.topic,
            *((topic.pool,) if has_pools else ()),
            view.partition,
            "none" if view.leader == NO_LEADER else view.leader,
            view.leader_epoch,
            _ids(view.in_sync_replicas),
            _replicas(view),
            "-" if view.high_watermark < 0 else view.high_watermark,
        )
        for topic in shown
        for view in topic.partitions
    ]
    pool_column = ("pool",) if has_pools else ()
    columns = (
        *("topic", *pool_column, "partition", "leader", "epoch", "isr", "replicas"),
        "high watermark",
    )
    console.print(table(columns, partitions) if partitions else "no partitions")
    for view in status.topics:
        if view not in shown and not view.is_fully_in_sync:
            console.print(_line_of_internal(view), markup=False)
    console.print()
    brokers = [
        (
            row.broker_id,
            *((row.pool,) if has_pools else ()),
            row.state,
            _epoch(row),
            row.http_url or "-",
            row.rack or "-",
        )
        for row in status.brokers
    ]
    console.print(table(("broker", *pool_column, "state", "epoch", "address", "rack"), brokers))
    reported = [
        each for each in status.conditions if not is_young or each.reason in LASTING_REASONS
    ]
    if reported:
        console.print()
        console.print("NEEDS ATTENTION", style="bold")
    for condition in reported:
        console.print(str(condition), markup=False)


def _line_of_internal(topic: TopicView) -> str:
    leaderless = sum(view.leader == NO_LEADER for view in topic.partitions)
    behind = sum(not view.is_fully_in_sync for view in topic.partitions)
    return (
        f"{topic.topic}: {behind} of {len(topic.partitions)} partitions "
        f"under-replicated, {leaderless} without a leader; see: tidemark status "
        f"{topic.topic}"
    )


def _epoch(row: BrokerRow) -> str:
    return "-" if row.broker_epoch < 0 else str(row.broker_epoch)


def _replicas(view: PartitionView) -> str:
    """Format a partition's replicas; while it moves, as `3,1,2,0 (+3 -0)`."""
    changes = [f"+{each}" for each in view.adding] + [f"-{each}" for each in view.removing]
    return _ids(view.replicas) + (f" ({' '.join(changes)})" if changes else "")


def _ids(broker_ids: tuple[int, ...]) -> str:
    return ",".join(str(broker_id) for broker_id in broker_ids) or "none"
