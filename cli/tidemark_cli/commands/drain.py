"""`tidemark drain BROKER`: every replica of a broker moves to others, while all is served.

It writes spec.drain of the BrokerPool. To remove the broker for good lower spec.replicas instead
(brokers with the highest ids go); both wait until the broker holds nothing. A drain that cannot
end is refused: too few other brokers, or a placement that names the broker. Retained data moves
too.
"""

import argparse
import asyncio
from collections.abc import Iterator

from tidemark_client.cluster_status import ClusterStatus
from tidemark_client.errors import EXIT_OK, EXIT_USAGE, CommandFailed
from tidemark_client.kubernetes_objects import Manifest
from tidemark_client.targets import pool_of

from tidemark_cli.commands.status import cluster_status
from tidemark_cli.commands.topic_objects import pool_name, topic_name
from tidemark_cli.objects import list_objects, patch_object, read_object
from tidemark_cli.output import Output

HELP = "move all replicas of a broker to others"
IDLE_SECONDS = 600.0  # of --wait, without one replica that moved
POLL_SECONDS = 0.5
MAX_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("broker", type=int, help="ID of the broker")
    parser.add_argument(
        "--undo",
        action="store_true",
        help="end the drain: replicas may be placed on the broker again",
    )
    parser.add_argument(
        "--wait", action="store_true", help="wait until the broker holds no replica"
    )


async def run(arguments: argparse.Namespace, output: Output) -> int:
    status = await cluster_status(arguments, with_high_watermarks=False)
    name = _pool(arguments, status)
    pool = await read_object(arguments, "BrokerPool", name)
    drained = {int(each) for each in pool["spec"].get("drain", [])}
    mine = status.of_pool(name)
    if arguments.undo:
        drained -= {arguments.broker}
    else:
        status.check_brokers(name, [arguments.broker])
        drained |= {arguments.broker}
        topics = [t for t in await list_objects(arguments, "Topic") if pool_name(t) == name]
        _check_can_end(arguments.broker, pool, drained, topics, mine)
    await patch_object(arguments, "BrokerPool", name, {"spec": {"drain": sorted(drained)}})
    held = held_by(mine, arguments.broker)
    if arguments.wait and not arguments.undo:
        await _until_empty(arguments, output, name)
        said = "holds no replica"
    elif arguments.undo:
        said = "may hold replicas again"
    else:
        said = f"is draining, {progress(held)}; see: tidemark drain {arguments.broker} --wait"
    output.result(
        {"pool": name, "drain": sorted(drained), "held": held},
        lambda console: console.print(f"broker {arguments.broker} of {name} {said}"),
    )
    return EXIT_OK


def _pool(arguments: argparse.Namespace, status: ClusterStatus) -> str:
    """Broker ids are a pool's own: with several pools one has to be named."""
    if arguments.pool is None and len(status.pools) > 1:
        raise CommandFailed(
            f"There are several pools: {', '.join(status.pools)}",
            to_do="choose the pool of the broker with --pool",
            exit_code=EXIT_USAGE,
        )
    return pool_of(status, arguments.pool, None)


def held_by(status: ClusterStatus, broker_id: int) -> list[str]:
    """`topic-partition` of each replica there, retained ones too."""
    return [
        f"{view.topic}-{each.partition}"
        for view in (*status.topics, *status.retained)
        for each in view.partitions
        if broker_id in each.replicas
    ]


def progress(held: list[str]) -> str:
    more = f" and {len(held) - MAX_SHOWN:,} more" if len(held) > MAX_SHOWN else ""
    shown = f": {', '.join(held[:MAX_SHOWN])}{more}" if held else ""
    return f"{len(held):,} replica{'' if len(held) == 1 else 's'} remaining{shown}"


def _check_can_end(
    broker_id: int, pool: Manifest, drained: set[int], topics: list[Manifest], status: ClusterStatus
) -> None:
    left = set(range(int(pool["spec"].get("replicas", 1)))) - drained
    reasons = [*_obstacles(broker_id, len(left), topics, status)]
    if reasons:
        more = f"; and {len(reasons) - MAX_SHOWN} more" if len(reasons) > MAX_SHOWN else ""
        raise CommandFailed(
            f"Broker {broker_id} cannot be drained: {'; '.join(reasons[:MAX_SHOWN])}{more}",
            to_do="remove the cause first; nothing was changed",
        )


def _obstacles(
    broker_id: int, left: int, topics: list[Manifest], status: ClusterStatus
) -> Iterator[str]:
    for topic in topics:
        name, spec = topic_name(topic), topic["spec"]
        wanted = int(spec.get("replicationFactor", 1))
        if wanted > left:
            yield (
                f"topic {name} has replication factor {wanted}, but only {left} brokers "
                "would remain"
            )
        pinned = [
            str(each["partition"])
            for each in spec.get("placement", [])
            if broker_id in each["replicas"]
        ]
        if pinned:
            yield f"spec.placement of Topic {name} places partitions {', '.join(pinned)} on it"
    for view in status.retained:
        for each in view.partitions:
            if broker_id in each.replicas and len(each.replicas) > left:
                yield (
                    f"retained data of topic {view.topic}, partition {each.partition}, "
                    f"has {len(each.replicas)} replicas, but only {left} brokers would "
                    "remain: raise spec.replicas, or run `tidemark topics purge "
                    f"{view.topic}`"
                )


async def _until_empty(arguments: argparse.Namespace, output: Output, pool: str) -> None:
    """Wait until the broker is empty.

    Raises CommandFailed when nothing moves.
    """
    loop = asyncio.get_running_loop()
    reported, ends_s = "", loop.time() + IDLE_SECONDS
    try:
        while loop.time() < ends_s:
            status = (await cluster_status(arguments, with_high_watermarks=False)).of_pool(pool)
            held = held_by(status, arguments.broker)
            if not held:
                return
            if (words := progress(held)) != reported:
                reported, ends_s = words, loop.time() + IDLE_SECONDS
                output.progress(f"broker {arguments.broker}: {words}")
            await asyncio.sleep(POLL_SECONDS)
    finally:
        output.end_progress()
    raise CommandFailed(
        f"No replica left broker {arguments.broker} for {IDLE_SECONDS:g} s: {reported}",
        to_do="see what the Topics wait for with `tidemark status`; the drain continues",
    )
