"""Show the in-sync sets of a pool: `tidemark isr`, with `--watch` live with the latest events.

The same words as the live ISR page, for a terminal of 80 columns and more.
"""

import argparse
import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from rich.console import Console, Group
from rich.text import Text
from tidemark_client.cluster_status import ClusterStatus
from tidemark_client.controller_api import (
    EVENTS_PATH,
    FIGURES_PATH,
    ControllerApi,
    open_controller,
)
from tidemark_client.errors import EXIT_OK, EXIT_USAGE, CommandFailed, not_found

from tidemark_cli.commands.status import cluster_status
from tidemark_cli.commands.why import moment
from tidemark_cli.isr_view import (
    NO_FIGURES,
    Disk,
    Figures,
    lines_of,
    read_figures,
    rows_of,
    summary,
)
from tidemark_cli.objects import object_namespace
from tidemark_cli.output import Output
from tidemark_cli.terminal_text import visible

HELP = "show the in-sync set of each partition, live with --watch"
WATCH_SECONDS = 0.5
MAX_WATCH_SECONDS = 3600.0
EVENT_LINES = 6
LATEST = 500  # events that are read at most for each refresh


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", nargs="?", help="show only this topic")
    parser.add_argument(
        "--watch",
        type=float,
        nargs="?",
        const=WATCH_SECONDS,
        metavar="SECONDS",
        help=f"refresh every SECONDS (default {WATCH_SECONDS:g}), until Ctrl-C",
    )


async def run(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.watch is not None and not 0.1 <= arguments.watch <= MAX_WATCH_SECONDS:
        raise CommandFailed(
            expected=f"--watch from 0.1 to {MAX_WATCH_SECONDS:g} seconds",
            found=f"--watch {arguments.watch:g}",
            exit_code=EXIT_USAGE,
        )
    if arguments.watch is None or output.is_json or not output.console.is_terminal:
        return await _print(arguments, output)
    return await _watch(arguments, output.console)


async def _print(arguments: argparse.Namespace, output: Output) -> int:
    """Print the state once, or again and again where no screen can be drawn over."""
    while True:
        pool, status = await _status(arguments)
        figures = await _figures_once(arguments, pool)
        output.result(
            _document(pool, status, figures),
            partial(_draw, pool=pool, status=status, figures=figures),
        )
        if arguments.watch is None:
            return EXIT_OK
        await asyncio.sleep(arguments.watch)


async def _watch(arguments: argparse.Namespace, console: Console) -> int:
    from rich.live import Live

    controller = await open_controller(arguments)
    try:
        await _status(arguments)  # what is not there ends it; later it is a lost connection
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(await _screen(arguments, console, controller), refresh=True)
                await asyncio.sleep(arguments.watch)
    finally:
        await controller.close()


async def _screen(
    arguments: argparse.Namespace, console: Console, controller: ControllerApi
) -> Group:
    """Return the present screen; a lost connection is one, and the next refresh tries again."""
    now = f"{datetime.now(UTC):%H:%M:%S}"
    try:
        pool, status = await _status(arguments)
        events = await _latest(arguments, controller, pool)
        figures = await _figures(arguments, controller, pool)
    except CommandFailed as lost:
        return Group(Text(f"{now}  connection lost: {lost.sentence}", style="bold red"))
    height = console.height - EVENT_LINES - 4
    lines = lines_of(status, figures, width=console.width, height=height)
    heading = Text(f"pool {visible(pool)}  {now}", style="bold reverse")
    return Group(heading, *lines, Text(), *_event_lines(events, console.width))


async def _figures_once(arguments: argparse.Namespace, pool: str) -> Figures:
    """Return the controller's figures; none where only brokers answer."""
    try:
        controller = await open_controller(arguments)
    except CommandFailed:
        return NO_FIGURES
    try:
        return await _figures(arguments, controller, pool)
    finally:
        await controller.close()


async def _figures(arguments: argparse.Namespace, controller: ControllerApi, pool: str) -> Figures:
    """Return disks and replicas that catch up; none from a controller of an earlier version."""
    key = f"{await object_namespace(arguments)}/{pool}"
    try:
        figures = read_figures(await controller.get(FIGURES_PATH, pool=key))
    except CommandFailed:
        return NO_FIGURES
    wanted = (each for each in figures.catching_up if arguments.topic in (None, each.topic))
    return replace(figures, catching_up=tuple(wanted))


async def _latest(
    arguments: argparse.Namespace, controller: ControllerApi, pool: str
) -> list[dict[str, Any]]:
    key = f"{await object_namespace(arguments)}/{pool}"
    probe = await controller.get(EVENTS_PATH, pool=key, after=2**53, limit=1)
    after = max(0, int(probe["newest"]) - LATEST)
    page = await controller.get(
        EVENTS_PATH, pool=key, topic=arguments.topic, after=after, limit=LATEST
    )
    events: list[dict[str, Any]] = page["events"]
    return events[-EVENT_LINES:]


def _event_lines(events: list[dict[str, Any]], width: int) -> list[Text]:
    lines = []
    for event in reversed(events):
        line = Text(f"{moment(event['atMs'])} ", no_wrap=True, overflow="ellipsis")
        line.append(event["kind"], style="yellow" if event["warning"] else "bold")
        line.append(f"  {visible(event['sentence'])}")
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return lines


async def _status(arguments: argparse.Namespace) -> tuple[str, ClusterStatus]:
    status = await cluster_status(arguments, with_high_watermarks=False)
    pools = status.pools
    pool = arguments.pool or ("default" if "default" in pools else next(iter(pools), "default"))
    if pools and pool not in pools:
        raise not_found("BrokerPool", pool, pools)
    status = status.of_pool(pool)
    if arguments.topic:
        topics = tuple(view for view in status.topics if view.topic == arguments.topic)
        if not topics:
            raise not_found("Topic", arguments.topic, [view.topic for view in status.topics])
        return pool, replace(status, topics=topics)
    return pool, status


def _draw(console: Console, pool: str, status: ClusterStatus, figures: Figures) -> None:
    lines = lines_of(
        status, figures, width=console.width, height=len(rows_of(status.topics)) * 2 + 100
    )
    console.print(Text(f"pool {visible(pool)}", style="bold"))
    for line in lines:
        console.print(line)


def _document(pool: str, status: ClusterStatus, figures: Figures) -> dict[str, Any]:
    rows = rows_of(status.topics)
    return {
        "pool": pool,
        "summary": summary(status, rows),
        "brokers": [
            {"brokerId": row.broker_id, "state": row.state}
            | _disk_document(figures.disks.get(row.broker_id))
            for row in status.brokers
        ],
        "catchingUp": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "brokerId": each.broker_id,
                "lagRecords": each.lag_records,
                "recordsPerSecond": each.records_per_second,
                "toGoMs": each.to_go_ms,
            }
            for each in figures.catching_up
        ],
        "partitions": [
            {
                "topic": row.topic,
                "partition": row.view.partition,
                "health": row.health.words,
                "leader": row.view.leader,
                "leaderEpoch": row.view.leader_epoch,
                "replicas": row.view.replicas,
                "isr": row.view.in_sync_replicas,
                "eligibleLeaders": row.view.eligible_leaders,
                "minIsr": row.view.min_insync_replicas,
            }
            for row in rows
        ],
    }


def _disk_document(disk: Disk | None) -> dict[str, Any]:
    if disk is None:
        return {}
    return {
        "diskFreeBytes": disk.free_bytes,
        "diskSizeBytes": disk.size_bytes,
        "diskState": disk.state,
    }
