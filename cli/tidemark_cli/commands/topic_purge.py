"""`tidemark topics purge`: deletes for good what is retained of a topic that was deleted.

It writes spec.purgeRetained of the BrokerPool, waits for the operator's result, and takes the name
off again. A topic that has a Topic object is never touched, whatever is asked for.
"""

import argparse
import sys
from collections.abc import Sequence

from tidemark_client.cluster_status import ClusterStatus
from tidemark_client.errors import EXIT_OK, EXIT_USAGE, CommandFailed, not_found
from tidemark_client.kubernetes_objects import Manifest
from tidemark_client.metadata import TopicView
from tidemark_client.waiting import until

from tidemark_cli.commands.status import cluster_status
from tidemark_cli.commands.topic_objects import pool_name, topic_name
from tidemark_cli.objects import list_objects, patch_object, read_object
from tidemark_cli.output import Output

FIELD = "purgeRetained"
PURGE_SECONDS = 60.0
POLL_SECONDS = 0.2


async def purge(arguments: argparse.Namespace, output: Output) -> int:
    topic = str(arguments.topic)
    status = await cluster_status(arguments, with_high_watermarks=False)
    retained = retained_of(status, topic, arguments.pool)
    pool = retained[0].pool
    for item in await list_objects(arguments, "Topic"):
        if (topic_name(item), pool_name(item)) == (topic, pool):
            raise _has_topic(topic, str(item["metadata"]["name"]))
    count = sum(len(view.partitions) for view in retained)
    if "yes" not in vars(arguments):
        _ask_for_the_name(topic, f"{count} partitions of topic {topic} in pool {pool}")
    if await _purged(arguments, pool, topic) == "HasTopic":
        raise _has_topic(topic, topic)
    output.result(
        {"purged": topic, "pool": pool, "partitions": count},
        lambda console: console.print(f"retained data of topic {topic} purged from pool {pool}"),
    )
    return EXIT_OK


def retained_of(status: ClusterStatus, topic: str, pool: str | None) -> list[TopicView]:
    """Return the retained topics of a name, in one pool.

    Raises CommandFailed if there are none.
    """
    views = [view for view in status.retained if pool in (None, view.pool)]
    found = [view for view in views if view.topic == topic]
    if not found:
        known = sorted({view.topic for view in views})
        raise not_found("Retained topic", topic, known, to_do="nothing was deleted")
    pools = sorted({view.pool for view in found})
    if len(pools) > 1:
        raise CommandFailed(
            f"Data of topic {topic!r} is retained in several pools: {', '.join(pools)}",
            to_do="choose one with --pool",
            exit_code=EXIT_USAGE,
        )
    return found


def _ask_for_the_name(topic: str, what: str) -> None:
    if not sys.stdin.isatty():
        raise CommandFailed(
            f"A purge deletes {what} permanently.",
            expected="--yes, or a terminal to confirm the name",
            found="neither",
            to_do=f"to delete it: tidemark topics purge {topic} --yes",
            exit_code=EXIT_USAGE,
        )
    print(f"This deletes {what} permanently. Type the topic's name:", end=" ", file=sys.stderr)
    sys.stderr.flush()
    typed = sys.stdin.readline().strip()
    if typed != topic:
        raise CommandFailed(
            "Nothing was deleted.", expected=f"the name {topic}", found=typed or "nothing"
        )


async def _purged(arguments: argparse.Namespace, pool: str, topic: str) -> str:
    """Request the purge and return the operator's result.

    The operator acts on a name once, so an earlier request is removed first.
    """
    names = _names(await read_object(arguments, "BrokerPool", pool))
    if topic in names:
        names.remove(topic)
        await _write(arguments, pool, names)
        await _until_result(arguments, pool, topic, is_there=False)
    await _write(arguments, pool, [*names, topic])
    item = await _until_result(arguments, pool, topic, is_there=True)
    result = _results(item)[topic]
    await _write(arguments, pool, [each for each in _names(item) if each != topic])
    return result


async def _write(arguments: argparse.Namespace, pool: str, names: Sequence[str]) -> None:
    await patch_object(arguments, "BrokerPool", pool, {"spec": {FIELD: list(names)}})


async def _until_result(
    arguments: argparse.Namespace, pool: str, topic: str, *, is_there: bool
) -> Manifest:
    found: list[Manifest] = []

    async def is_so() -> bool:
        found[:] = [await read_object(arguments, "BrokerPool", pool)]
        return (topic in _results(found[0])) == is_there

    await until(
        is_so,
        f"status.{FIELD} of BrokerPool {pool} to {'name' if is_there else 'drop'} {topic}",
        within_seconds=PURGE_SECONDS,
        every_seconds=POLL_SECONDS,
        to_do="check the BrokerPool's condition Purged and the operator; the purge stays requested "
        f"in spec.{FIELD}",
    )
    return found[0]


def _names(item: Manifest) -> list[str]:
    return [str(each) for each in item["spec"].get(FIELD) or ()]


def _results(item: Manifest) -> dict[str, str]:
    entries = (item.get("status") or {}).get(FIELD) or ()
    return {str(each["topicName"]): str(each["result"]) for each in entries}


def _has_topic(topic: str, object_name: str) -> CommandFailed:
    return CommandFailed(
        f"Topic {topic!r} has a Topic object: nothing was deleted.",
        expected=f"data of a deleted topic {topic}",
        found=f"Topic {object_name}",
        to_do=f"to delete it with its data: tidemark topics delete {topic} --with-data",
    )
