"""Explain the state of a partition: `tidemark why TOPIC [PARTITION]`.

It says why its leader leads, why a replica is not in sync, whether acks=all is accepted, what a
reassignment or a rolling update waits for, and which broker is next; then the latest events.
"""

import argparse
import sys
import textwrap
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.text import Text
from tidemark_client.cluster_status import open_conditions
from tidemark_client.controller_api import WHY_PATH, open_controller
from tidemark_client.errors import EXIT_OK

from tidemark_cli.commands.topic_objects import find_topic, pool_name, topic_name
from tidemark_cli.objects import list_objects, object_namespace
from tidemark_cli.output import Output
from tidemark_cli.terminal_text import visible

HELP = "explain a partition: its leader, its ISR, acks=all, and what it waits for"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", help="name of the topic, or metadata.name of the Topic")
    parser.add_argument("partition", type=int, nargs="?", default=0, help="default 0")


async def run(arguments: argparse.Namespace, output: Output) -> int:
    item = await find_topic(arguments, arguments.topic)
    namespace, pool = await object_namespace(arguments), pool_name(item)
    controller = await open_controller(arguments)
    try:
        found = await controller.get(
            WHY_PATH,
            pool=f"{namespace}/{pool}",
            topic=topic_name(item),
            partition=arguments.partition,
        )
    finally:
        await controller.close()
    pools = [
        each
        for each in await list_objects(arguments, "BrokerPool")
        if each["metadata"]["name"] == pool
    ]
    conditions = [
        *map(str, open_conditions("Topic", [item])),
        *map(str, open_conditions("BrokerPool", pools)),
    ]
    output.result(
        found | {"conditions": conditions}, lambda console: _draw(console, found, conditions)
    )
    return EXIT_OK


def _draw(console: Console, found: dict[str, Any], conditions: list[str]) -> None:
    isr = ", ".join(map(str, found["isr"])) or "empty"
    replicas = ", ".join(map(str, found["replicas"]))
    leader = found["leader"] if found["leader"] >= 0 else "none"
    heading = f"{found['topic']}-{found['partition']}"
    console.print(
        f"{visible(heading)}: leader {leader}, epoch {found['leaderEpoch']}, ISR {isr} of"
        f" replicas {replicas}, min ISR {found['minIsr']}",
        style="bold",
        markup=False,
        highlight=False,
    )
    for each in found["answers"]:
        since = f" ({moment(each['atMs'])})" if each["atMs"] else ""
        console.print()
        console.print(Text(visible(each["question"]) + since, style="bold"))
        _paragraph(console, each["answer"])
    if conditions:
        console.print()
        console.print(Text("Conditions", style="bold"))
    for sentence in conditions:
        _paragraph(console, sentence)
    if found["events"]:
        console.print()
        console.print(Text("Latest events, newest first", style="bold"))
        for event in found["events"]:
            _paragraph(console, f"{moment(event['atMs'])}  {event['kind']}  {event['sentence']}")


def _paragraph(console: Console, text: str) -> None:
    """Print the text indented; folded on a terminal, one line elsewhere."""
    width = console.width if console.is_terminal else sys.maxsize
    folded = textwrap.fill(
        visible(text),
        width,
        initial_indent="  ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    console.print(Text(folded))


def moment(at_ms: int) -> str:
    """Return the time of day in UTC, in milliseconds."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}"
