"""Print the controller's decisions: `tidemark events`, with `--watch` as they happen.

Each has its kind and a sentence with the reason. The controller keeps the latest 10,000 of a pool,
of an hour at most, and begins anew when another one takes over.
"""

import argparse
import asyncio
from functools import partial
from typing import Any

from rich.console import Console
from rich.text import Text
from tidemark_client.controller_api import EVENTS_PATH, ControllerApi, open_controller
from tidemark_client.errors import EXIT_OK, EXIT_USAGE, CommandFailed

from tidemark_cli.commands.why import moment
from tidemark_cli.objects import object_namespace
from tidemark_cli.output import Output
from tidemark_cli.terminal_text import visible

HELP = "show what the controller decided and why: elections, ISR changes, fences, moves"
PAGE = 1000
LAST = 50
WATCH_SECONDS = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", nargs="?", help="only events of this topic")
    parser.add_argument("partition", type=int, nargs="?", help="only events of this partition")
    parser.add_argument("--broker", type=int, metavar="ID", help="only events of this broker")
    parser.add_argument(
        "--last", type=int, default=LAST, metavar="N", help=f"the latest N events (default {LAST})"
    )
    parser.add_argument("--watch", action="store_true", help="continue with new ones, until Ctrl-C")


async def run(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.last < 0:
        raise CommandFailed(
            expected="--last from 0 on", found=f"--last {arguments.last}", exit_code=EXIT_USAGE
        )
    controller = await open_controller(arguments)
    try:
        if arguments.pool is not None:
            arguments.pool_key = f"{await object_namespace(arguments)}/{arguments.pool}"
        page, events = await _read(controller, arguments, after=0)
        shown = events[-arguments.last :] if arguments.last else []
        output.result(page | {"events": shown}, lambda console: _draw(console, shown))
        if not events:
            output.remark("no events are kept of that; `tidemark events` shows all")
        while arguments.watch:
            await asyncio.sleep(WATCH_SECONDS)
            previous = page
            # Another term counts from 1 again.
            page, events = await _read(
                controller, arguments, after=page["newest"], term=page["term"]
            )
            if page["term"] != previous["term"]:
                output.remark("another controller took over")
            for event in events:
                output.result(event, partial(_draw, events=[event]))
    finally:
        await controller.close()
    return EXIT_OK


async def _read(
    controller: ControllerApi, arguments: argparse.Namespace, *, after: int, term: int | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the last page and all events after that number."""
    events: list[dict[str, Any]] = []
    while True:
        page = await controller.get(
            EVENTS_PATH,
            pool=getattr(arguments, "pool_key", None),
            topic=arguments.topic,
            partition=arguments.partition,
            broker=arguments.broker,
            after=after,
            limit=PAGE,
        )
        if term is not None and page["term"] != term:
            after, term, events = 0, page["term"], []
            continue
        events += page["events"]
        if len(page["events"]) < PAGE:
            return page, events
        after = page["events"][-1]["number"]


def _draw(console: Console, events: list[dict[str, Any]]) -> None:
    for event in events:
        line = Text(f"{moment(event['atMs'])} ")
        line.append(event["kind"], style="bold yellow" if event["warning"] else "bold")
        line.append(f"  {visible(event['sentence'])}")
        console.print(line, soft_wrap=True)
