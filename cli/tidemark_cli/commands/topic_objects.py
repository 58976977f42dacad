"""Create, describe, alter and delete one Topic object, for `tidemark topics`.

A topic is named by its name for clients or by its object's name. The server that stores the object
validates it; its messages are printed unchanged.
"""

import argparse
from typing import Any

from tidemark_client.errors import EXIT_OK, EXIT_USAGE, CommandFailed, not_found
from tidemark_client.kubernetes_objects import GROUP, VERSION, Manifest
from tidemark_client.metadata import NO_LEADER, PartitionView
from tidemark_client.waiting import until
from tidemark_protocol.topic_configs import canonical_value
from tidemark_protocol.topic_names import object_names, topic_name_fault

from tidemark_cli.commands.status import cluster_status
from tidemark_cli.objects import (
    create_object,
    delete_object,
    list_objects,
    object_namespace,
    patch_object,
    read_object,
)
from tidemark_cli.output import Output, table
from tidemark_cli.topic_readiness import until_ready

SEEN_SECONDS = 30.0
SEEN_POLL_SECONDS = 0.2


async def create(arguments: argparse.Namespace, output: Output) -> int:
    options = vars(arguments)
    topic, pool = arguments.topic, str(arguments.pool or "default")
    fault = topic_name_fault(topic)
    if fault:
        raise _usage(expected="a valid topic name", found=fault)
    for known in await list_objects(arguments, "Topic"):
        if topic_name(known) == topic and pool_name(known) == pool:
            raise CommandFailed(
                f"Topic {topic!r} already exists.",
                expected=f"no topic {topic} in pool {pool}",
                found=f"Topic {known['metadata']['name']}",
                to_do=f"change it: tidemark topics alter {topic}, or choose another name",
            )
    spec: dict[str, Any] = {"brokerPool": pool}
    await _check_replication(arguments, pool, options.get("replication_factor"))
    namespace = await object_namespace(arguments)
    name = object_names(f"{namespace}/{pool}", topic)[0]
    if name != topic:
        spec["topicName"] = topic
    if "deletion_policy" in options:
        spec["deletionPolicy"] = arguments.deletion_policy
    manifest = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Topic",
        "metadata": {"name": name},
        "spec": spec | _spec_of(options),
    }
    made = await create_object(arguments, manifest)
    if "no_wait" not in options:
        await until_ready(arguments, output, topic, name)
    shown = topic if name == topic else f"{topic} (Topic {name})"
    output.result(made, lambda console: console.print(f"topic {shown} created"))
    return EXIT_OK


async def _check_pool(arguments: argparse.Namespace) -> None:
    """Raise CommandFailed if --pool names a pool that does not exist."""
    if arguments.pool is None:
        return
    names = [each["metadata"]["name"] for each in await list_objects(arguments, "BrokerPool")]
    if names and arguments.pool not in names:
        raise not_found("BrokerPool", arguments.pool, names)


async def _check_replication(arguments: argparse.Namespace, pool: str, wanted: int | None) -> None:
    """Refuse what no broker could hold, as Kafka does (INVALID_REPLICATION_FACTOR)."""
    pools = await list_objects(arguments, "BrokerPool")
    known = next((each for each in pools if each["metadata"]["name"] == pool), None)
    if known is None and pool != "default":
        raise not_found("BrokerPool", pool, [each["metadata"]["name"] for each in pools])
    if known is None or wanted is None:
        return  # a pool `default` is made as large as its first topic needs
    drained = known["spec"].get("drain", [])
    usable = len(set(range(known["spec"].get("replicas", 1))) - set(drained))
    if wanted > usable:
        raise CommandFailed(
            f"Replication factor: {wanted} larger than available brokers: {usable}.",
            expected=f"--replication-factor of at most {usable}, the brokers of BrokerPool {pool} "
            "that accept replicas",
            found=str(wanted),
            to_do="use a lower factor, or raise spec.replicas of the BrokerPool",
        )


async def describe(arguments: argparse.Namespace, output: Output) -> int:
    item = await _find(arguments)
    topic = topic_name(item)
    status = await cluster_status(arguments, with_high_watermarks=False)
    reported = status.topic_of_object(str(item["metadata"]["name"]))
    views = reported.partitions if reported is not None else ()
    conditions = item.get("status", {}).get("conditions", [])
    columns = ("partition", "leader", "replicas", "in-sync", "leader-epoch")

    def human(console: Any) -> None:
        spec = item["spec"]
        console.print(f"topic       {topic}  (Topic {item['metadata']['name']})")
        console.print(f"pool        {pool_name(item)}")
        for name in ("partitions", "replicationFactor", "commitRule", "flush", "deletionPolicy"):
            if name in spec:
                console.print(f"{name}: {spec[name]}")
        for name, value in sorted((spec.get("config") or {}).items()):
            console.print(f"  {name}={value}", markup=False)
        if views:
            console.print(table(columns, [_partition_row(view) for view in views]))
        else:
            console.print("no partitions")
        for each in conditions:
            words = f"{each['type']}={each['status']} {each['reason']}: {each['message']}"
            console.print(words, markup=False)

    output.result({"object": item, "partitions": [_partition_json(view) for view in views]}, human)
    return EXIT_OK


async def alter(arguments: argparse.Namespace, output: Output) -> int:
    options = vars(arguments)
    spec = _spec_of(options)
    for name in options.get("delete_config", ()):
        spec.setdefault("config", {})[name] = None  # a merge patch's word for: not there
    if not spec:
        raise _usage(
            expected="at least one change",
            found="none of --config, --delete-config, --partitions, --replication-factor",
        )
    item = await _find(arguments)
    name = item["metadata"]["name"]
    changed = await patch_object(arguments, "Topic", name, {"spec": spec})
    output.result(changed, lambda console: console.print(f"topic {topic_name(item)} changed"))
    return EXIT_OK


async def delete(arguments: argparse.Namespace, output: Output) -> int:
    item = await _find(arguments)
    name, topic = item["metadata"]["name"], topic_name(item)
    policy = item["spec"].get("deletionPolicy", "Retain")
    if "with_data" in vars(arguments) and policy != "Delete":
        policy = "Delete"
        patch = {"spec": {"deletionPolicy": policy}}
        changed = await patch_object(arguments, "Topic", name, patch)
        await _until_seen(arguments, name, changed["metadata"]["generation"])
    await delete_object(arguments, "Topic", name)
    kept = "; its data is kept for the next topic of that name, or until `tidemark topics purge`"
    kept = "" if policy == "Delete" else f"{kept} {topic}"
    output.result(
        {"deleted": name, "topic": topic, "deletionPolicy": policy},
        lambda console: console.print(f"topic {topic} deleted{kept}"),
    )
    return EXIT_OK


async def _until_seen(arguments: argparse.Namespace, name: str, generation: int) -> None:
    """Wait until the operator has observed a generation.

    The operator decides by the generation it has observed whether it keeps a deleted topic's data.
    """

    async def is_seen() -> bool:
        item = await read_object(arguments, "Topic", name)
        return bool(item.get("status", {}).get("observedGeneration", 0) >= generation)

    await until(
        is_seen,
        "the operator to apply deletionPolicy Delete",
        within_seconds=SEEN_SECONDS,
        every_seconds=SEEN_POLL_SECONDS,
        to_do="check `tidemark status` and the operator, then delete it again: nothing was deleted",
    )


async def _find(arguments: argparse.Namespace) -> Manifest:
    return await find_topic(arguments, arguments.topic)


async def find_topic(arguments: argparse.Namespace, wanted: str) -> Manifest:
    """Find a Topic by its name for clients, else by metadata.name; in --pool, if that is given.

    Of two objects that claim a name, the one whose metadata.name equals it is returned, else the
    older one, which owns it. Raises CommandFailed.
    """
    every = await list_objects(arguments, "Topic")
    await _check_pool(arguments)
    if not every:
        return await read_object(arguments, "Topic", wanted)  # says why there are none
    items = [each for each in every if arguments.pool in (None, pool_name(each))]
    found = [item for item in items if topic_name(item) == wanted]
    found = found or [item for item in items if item["metadata"]["name"] == wanted]
    if not found:
        raise not_found("Topic", wanted, [topic_name(item) for item in items])
    pools = sorted({pool_name(item) for item in found})
    if len(pools) > 1:
        raise CommandFailed(
            f"Topic {wanted!r} is in several pools: {', '.join(pools)}",
            to_do="choose one with --pool",
            exit_code=EXIT_USAGE,
        )
    named = [item for item in found if item["metadata"]["name"] == wanted]
    return min(named or found, key=lambda item: item["metadata"].get("creationTimestamp", ""))


def _spec_of(options: dict[str, Any]) -> dict[str, Any]:
    """Return the spec fields that create and alter share."""
    spec: dict[str, Any] = {}
    if "partitions" in options:
        spec["partitions"] = options["partitions"]
    if "replication_factor" in options:
        spec["replicationFactor"] = options["replication_factor"]
    for text in options.get("configs", ()):
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise _usage(expected="--config NAME=VALUE, such as retention.ms=60000", found=text)
        name = name.strip()
        spec.setdefault("config", {})[name] = canonical_value(name, value.strip())
    return spec


def _usage(*, expected: str, found: str) -> CommandFailed:
    return CommandFailed(
        expected=expected, found=found, to_do="see: tidemark topics --help", exit_code=EXIT_USAGE
    )


def topic_name(item: Manifest) -> str:
    return str(item["spec"].get("topicName") or item["metadata"]["name"])


def pool_name(item: Manifest) -> str:
    return str(item["spec"].get("brokerPool") or "default")


def _partition_row(view: PartitionView) -> tuple[int, str, str, str, int]:
    leader = "none" if view.leader == NO_LEADER else str(view.leader)
    return (
        view.partition,
        leader,
        ",".join(map(str, view.replicas)),
        ",".join(map(str, view.in_sync_replicas)),
        view.leader_epoch,
    )


def _partition_json(view: PartitionView) -> dict[str, Any]:
    """Describe a partition; the last two keys are old names, kept for one release."""
    partition, leader, replicas, in_sync, epoch = _partition_row(view)
    return {
        "partition": partition,
        "leader": leader,
        "replicas": replicas,
        "inSync": in_sync,
        "leaderEpoch": epoch,
        "in-sync": in_sync,
        "leader-epoch": epoch,
    }
