"""Compute what a Topic object becomes by a client's change, or why it is rejected.

The caller checks the manifest's own rules, as for every writer.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.topic_configs import CLEANUP_POLICY, KNOWN_NAMES, canonical_value, text_of
from tidemark_protocol.topic_messages import (
    ConfigChange,
    ConfigOperation,
    TopicToAlter,
    TopicToExpand,
)

from tidemark_operator.api.config_checks import config_faults, unknown_config_sentence
from tidemark_operator.api.kinds import Object
from tidemark_operator.topic_admin.field_managers import RequestRejected
from tidemark_operator.topic_admin.new_topics import (
    MAX_PARTITIONS,
    MAX_PLACED,
    PoolPlacement,
    assignments_error,
    placement_entries,
)
from tidemark_operator.topic_admin.room import Room

LIST_CONFIGS = frozenset({CLEANUP_POLICY.name})

# Of a topic's partitions that are to move: where to.
Targets = Mapping[int, tuple[BrokerId, ...]]


def deletion_error(topic: Object) -> RequestRejected | None:
    """Return the error of a deletion, or None (I20).

    Data is deleted only if the manifest says so; retained data would come back to the next topic of
    that name.
    """
    name = topic["metadata"]["name"]
    if topic["spec"]["deletionPolicy"] == "Delete":
        return None
    return RequestRejected(
        ErrorCode.POLICY_VIOLATION,
        f"Topic {name} has deletionPolicy {topic['spec']['deletionPolicy']}, so its data"
        " would be retained and adopted by a new topic of that name: set deletionPolicy to"
        f" Delete first, or delete the object to retain the data (kubectl delete topic {name})",
    )


def grown(
    topic: Object, change: TopicToExpand, places: PoolPlacement, room: Room
) -> Object | RequestRejected:
    spec = topic["spec"]
    current, count = spec["partitions"], change.partition_count
    if not current < count <= MAX_PARTITIONS:
        return RequestRejected(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {change.topic} has {current} partitions: expected more, at most"
            f" {MAX_PARTITIONS}, found {count}",
        )
    rejection = room.take(change.topic, count - current)
    if rejection is not None:
        return rejection
    after = copy.deepcopy(topic)
    after["spec"]["partitions"] = count
    if change.assignments:
        rejection = _growth_error(change, current, spec["replicationFactor"], places)
        if rejection is not None:
            return rejection
        _place(after, dict(enumerate(change.assignments, start=current)))
    return after


def _growth_error(
    change: TopicToExpand, current: int, replicas: int, places: PoolPlacement
) -> RequestRejected | None:
    new = change.partition_count - current
    if len(change.assignments) != new:
        return RequestRejected(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"expected assignments of the {new} new partitions, found {len(change.assignments)}",
        )
    if len(change.assignments[0]) != replicas:
        return RequestRejected(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"expected {replicas} brokers for each partition (the replication factor), found"
            f" {len(change.assignments[0])}",
        )
    return assignments_error(change.assignments, places)


def altered(topic: Object, change: TopicToAlter) -> Object | RequestRejected:
    """Return the Topic with its config changed as by kafka-configs."""
    stored: dict[str, str] = topic["spec"]["config"]
    config = {} if change.replaces_all else dict(stored)
    names = [each.name for each in change.changes]
    if len(set(names)) != len(names):
        return RequestRejected(
            ErrorCode.INVALID_REQUEST, f"a config appears twice: {sorted(names)}"
        )
    for each in change.changes:
        fault = _apply(config, each)
        if fault:
            return RequestRejected(ErrorCode.INVALID_CONFIG, fault)
    faults = tuple(config_faults(config, topic["spec"]["replicationFactor"]))
    if faults:
        return RequestRejected(ErrorCode.INVALID_CONFIG, "; ".join(faults))
    after = copy.deepcopy(topic)
    after["spec"]["config"] = dict(sorted(config.items()))
    return after


def _apply(config: dict[str, str], change: ConfigChange) -> str:
    """Apply a change to `config`; return why it is impossible, or "".

    The values are checked with the whole config.
    """
    match change.operation:
        case ConfigOperation.SET:
            config[change.name] = canonical_value(change.name, change.value)
            return ""
        case ConfigOperation.DELETE:
            config.pop(change.name, None)
            return "" if change.name in KNOWN_NAMES else unknown_config_sentence(change.name)
        case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
            if change.name not in LIST_CONFIGS:
                return f"{change.name} is not a list: set it, or delete it"
            config[change.name] = canonical_value(change.name, _changed_list(config, change))
            return ""


def _changed_list(config: Mapping[str, str], change: ConfigChange) -> str:
    current = [word for word in text_of(CLEANUP_POLICY, config).split(",") if word]
    named = [word.strip() for word in change.value.split(",")]
    if change.operation is ConfigOperation.SUBTRACT:
        return ",".join(word for word in current if word not in named)
    return ",".join([*current, *(word for word in named if word not in current)])


def reassigned(
    topic: Object, targets: Targets, places: PoolPlacement, *, may_change_factor: bool
) -> Object | RequestRejected:
    """Return the Topic with another spec.placement.

    The replication factor changes if every partition gets another one.
    """
    spec = topic["spec"]
    unknown = sorted(set(targets) - set(range(spec["partitions"])))
    if unknown:
        return RequestRejected(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partitions {unknown} do not exist"
        )
    for number in sorted(targets):
        rejection = assignments_error((targets[number],), places)
        if rejection is not None:
            return rejection
    factors = sorted({len(replicas) for replicas in targets.values()})
    if factors != [spec["replicationFactor"]]:
        rejection = _factor_error(spec, targets, factors, may_change=may_change_factor)
        if rejection is not None:
            return rejection
    after = copy.deepcopy(topic)
    after["spec"]["replicationFactor"] = factors[0]
    _place(after, targets)
    if len(after["spec"]["placement"]) > MAX_PLACED:
        return RequestRejected(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"spec.placement of a Topic has at most {MAX_PLACED} partitions: move fewer partitions",
        )
    return after


def _factor_error(
    spec: Mapping[str, Any], targets: Targets, factors: Sequence[int], *, may_change: bool
) -> RequestRejected | None:
    stored, count = spec["replicationFactor"], spec["partitions"]
    found = " and ".join(map(str, factors))
    if not may_change:
        return RequestRejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"expected {stored} brokers for each partition, found {found}",
        )
    if len(targets) != count or len(factors) > 1:
        return RequestRejected(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"spec.replicationFactor {stored} of the Topic applies to all partitions: found"
            f" {found} brokers for {len(targets)} of {count} partitions; list {stored}"
            f" brokers for each, or another number for all {count} partitions in one request",
        )
    return None


def _place(topic: Object, targets: Targets) -> None:
    stored = {
        entry["partition"]: tuple(BrokerId(number) for number in entry["replicas"])
        for entry in topic["spec"].get("placement") or ()
    }
    topic["spec"]["placement"] = placement_entries(stored | dict(targets))
