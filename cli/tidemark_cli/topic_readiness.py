"""Waiting until a Topic is ready, with how far it is; a reason that time cannot mend ends it."""

import argparse
import asyncio

from tidemark_client.cluster_status import ReadyCondition, ready_condition
from tidemark_client.errors import CommandFailed
from tidemark_client.metadata import NO_LEADER
from tidemark_protocol.condition_reasons import LASTING_REASONS

from tidemark_cli.commands.status import cluster_status
from tidemark_cli.objects import read_object
from tidemark_cli.output import Output

READY_SECONDS = 60.0  # without any progress
POLL_SECONDS, MAX_POLL_SECONDS = 0.2, 2.0


async def until_ready(arguments: argparse.Namespace, output: Output, topic: str, name: str) -> None:
    """`name`: metadata.name. Raises CommandFailed with the reason when it does not become so."""
    loop = asyncio.get_running_loop()
    reported, last, pause_s = "", None, POLL_SECONDS
    ends_s = loop.time() + READY_SECONDS
    try:
        while loop.time() < ends_s:
            item = await read_object(arguments, "Topic", name)
            last = ready_condition(item)
            if last is not None and last.is_of_this_spec:
                if last.is_true:
                    return
                if last.reason in LASTING_REASONS:
                    break
            wanted = int(item["spec"].get("partitions", 1))
            words = await _progress(arguments, name, wanted, last)
            if words != reported:
                reported, ends_s = words, loop.time() + READY_SECONDS
                output.progress(f"topic {topic}: {words}")
            await asyncio.sleep(pause_s)
            pause_s = min(1.2 * pause_s, MAX_POLL_SECONDS)  # large topics take a while
    finally:
        output.end_progress()
    raise CommandFailed(
        f"Topic {topic!r} was created and is not ready: "
        + (last.message if last is not None else "the operator has not processed it"),
        to_do=f"correct it with `tidemark topics alter {topic}`, or remove it with"
        f" `tidemark topics delete {topic}`",
    )


async def _progress(
    arguments: argparse.Namespace, name: str, wanted: int, ready: ReadyCondition | None
) -> str:
    """Such as `1,240 of 2,000 partitions led`."""
    if ready is not None and ready.reason == "Progressing":
        return ready.message
    status = await cluster_status(arguments, with_high_watermarks=False)
    view = status.topic_of_object(name)
    if view is None:
        return ready.message if ready is not None else "waiting for the operator"
    led = sum(each.leader != NO_LEADER for each in view.partitions)
    return f"{led:,} of {wanted:,} partitions have a leader"
