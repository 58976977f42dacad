"""What `tidemark topics create|describe|alter|delete` do to one Topic object.

A topic is named by what clients call it or by its object's name. The rules stand where the object
is kept; their sentences are told as they come.
"""

import argparse
from typing import Any

from tidemark_protocol.topic_configs import canonical_value
from tidemark_protocol.topic_names import object_names, topic_name_fault

from tidemark_cli.commands.status import cluster_status
from tidemark_cli.failures import EXIT_OK, EXIT_USAGE, CommandFailed
from tidemark_cli.kubernetes_objects import GROUP, VERSION, Manifest
from tidemark_cli.metadata import NO_LEADER, PartitionView
from tidemark_cli.objects import (
    create_object,
    delete_object,
    list_objects,
    object_namespace,
    patch_object,
    read_object,
)
from tidemark_cli.output import Output, table
from tidemark_cli.waiting import until

SEEN_SECONDS = 30.0
SEEN_POLL_SECONDS = 0.2


async def create(arguments: argparse.Namespace, output: Output) -> int:
    options = vars(arguments)
    topic, pool = arguments.topic, str(options.get("pool") or "default")
    fault = topic_name_fault(topic)
    if fault:
        raise _usage(expected="a name that topics can have", found=fault)
    for known in await list_objects(arguments, "Topic"):
        if _topic_name(known) == topic and _pool_of(known) == pool:
            raise CommandFailed(
                expected=f"no topic {topic} yet",
                found=f"Topic {known['metadata']['name']}",
                to_do=f"change it: tidemark topics alter {topic}, or choose another name",
            )
    namespace = await object_namespace(arguments)
    name = object_names(f"{namespace}/{pool}", topic)[0]
    spec: dict[str, Any] = {"brokerPool": pool}
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
    shown = topic if name == topic else f"{topic} (Topic {name})"
    output.result(made, lambda console: console.print(f"topic {shown} created"))
    return EXIT_OK


async def describe(arguments: argparse.Namespace, output: Output) -> int:
    item = await _find(arguments)
    topic = _topic_name(item)
    told = (await cluster_status(arguments)).topic(topic)
    views = told.partitions if told is not None else ()
    conditions = item.get("status", {}).get("conditions", [])
    columns = ("partition", "leader", "replicas", "in-sync", "leader-epoch")

    def human(console: Any) -> None:
        spec = item["spec"]
        console.print(f"topic       {topic}  (Topic {item['metadata']['name']})")
        console.print(f"pool        {_pool_of(item)}")
        for name in ("partitions", "replicationFactor", "commitRule", "flush", "deletionPolicy"):
            if name in spec:
                console.print(f"{name}: {spec[name]}")
        for name, value in sorted((spec.get("config") or {}).items()):
            console.print(f"  {name}={value}", markup=False)
        if views:
            console.print(table(columns, [_partition_row(view) for view in views]))
        for each in conditions:
            words = f"{each['type']}={each['status']} {each['reason']}: {each['message']}"
            console.print(words, markup=False)

    output.result(
        {
            "object": item,
            "partitions": [dict(zip(columns, _partition_row(v), strict=True)) for v in views],
        },
        human,
    )
    return EXIT_OK


async def alter(arguments: argparse.Namespace, output: Output) -> int:
    options = vars(arguments)
    spec = _spec_of(options)
    for name in options.get("delete_config", ()):
        spec.setdefault("config", {})[name] = None  # a merge patch's word for: not there
    if not spec:
        raise _usage(
            expected="something to change",
            found="none of --config, --delete-config, --partitions, --replication-factor",
        )
    item = await _find(arguments)
    name = item["metadata"]["name"]
    changed = await patch_object(arguments, "Topic", name, {"spec": spec})
    output.result(changed, lambda console: console.print(f"topic {_topic_name(item)} changed"))
    return EXIT_OK


async def delete(arguments: argparse.Namespace, output: Output) -> int:
    item = await _find(arguments)
    name, topic = item["metadata"]["name"], _topic_name(item)
    policy = item["spec"].get("deletionPolicy", "Retain")
    if "with_data" in vars(arguments) and policy != "Delete":
        policy = "Delete"
        patch = {"spec": {"deletionPolicy": policy}}
        changed = await patch_object(arguments, "Topic", name, patch)
        await _until_seen(arguments, name, changed["metadata"]["generation"])
    await delete_object(arguments, "Topic", name)
    kept = "" if policy == "Delete" else "; its data is kept for the next topic of that name"
    output.result(
        {"deleted": name, "topic": topic, "deletionPolicy": policy},
        lambda console: console.print(f"topic {topic} deleted{kept}"),
    )
    return EXIT_OK


async def _until_seen(arguments: argparse.Namespace, name: str, generation: int) -> None:
    """What becomes of the data goes by what the operator has seen when the object goes."""

    async def is_seen() -> bool:
        item = await read_object(arguments, "Topic", name)
        return bool(item.get("status", {}).get("observedGeneration", 0) >= generation)

    await until(
        is_seen,
        "the operator to see deletionPolicy Delete",
        within_seconds=SEEN_SECONDS,
        every_seconds=SEEN_POLL_SECONDS,
        to_do="look at `tidemark status` and at the operator, then delete it again:"
        " nothing was deleted",
    )


async def _find(arguments: argparse.Namespace) -> Manifest:
    items = await list_objects(arguments, "Topic")
    wanted = arguments.topic
    found = [item for item in items if _topic_name(item) == wanted]
    found = found or [item for item in items if item["metadata"]["name"] == wanted]
    if len(found) == 1:
        return found[0]
    names = ", ".join(item["metadata"]["name"] for item in found) or "none"
    raise CommandFailed(
        expected=f"one topic {wanted}",
        found=names,
        to_do="look at `tidemark topics`, or name the object (metadata.name)",
        exit_code=EXIT_USAGE,
    )


def _spec_of(options: dict[str, Any]) -> dict[str, Any]:
    """What create and alter have in common."""
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


def _topic_name(item: Manifest) -> str:
    return str(item["spec"].get("topicName") or item["metadata"]["name"])


def _pool_of(item: Manifest) -> str:
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
