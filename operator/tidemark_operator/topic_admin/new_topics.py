"""Build the Topic object that a client's CreateTopics requests.

Kafka's checks with Kafka's codes come first; then the manifest is checked by the same rules as one
that came by kubectl.
"""

from dataclasses import dataclass

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.topic_configs import canonical_value
from tidemark_protocol.topic_messages import DEFAULT_COUNT, NewTopic
from tidemark_protocol.topic_names import object_names, topic_name_fault

from tidemark_operator.api.config_checks import config_faults
from tidemark_operator.api.kinds import TOPIC, Object
from tidemark_operator.api.schemas import apply_defaults, validate
from tidemark_operator.topic_admin.field_managers import (
    MADE_BY_LABEL,
    REQUEST_ANNOTATION,
    RequestRejected,
)

DEFAULT_REPLICAS = 3
MAX_PARTITIONS = 10_000
MAX_REPLICAS = 10
MAX_PLACED = 1000  # partitions that spec.placement can name


@dataclass(frozen=True, slots=True)
class PoolPlacement:
    """Where replicas may be: the manifest's brokers that do not leave."""

    pool: str  # namespace/name
    usable: tuple[BrokerId, ...]
    default_partitions: int = 1


@dataclass(frozen=True, slots=True)
class _Counts:
    partitions: int
    replicas: int


def topic_manifest(
    new: NewTopic, places: PoolPlacement, *, request_id: str, name_choice: int = 0
) -> Object | RequestRejected:
    """Return the Topic with its defaults, or the error.

    `name_choice` selects another object name if the first is taken by a Topic of another
    topicName.
    """
    fault = topic_name_fault(new.topic)
    if fault:
        return RequestRejected(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    counts = _counts(new, places)
    if isinstance(counts, RequestRejected):
        return counts
    faults = tuple(config_faults(new.config, counts.replicas))
    if faults:
        return RequestRejected(ErrorCode.INVALID_CONFIG, "; ".join(faults))
    names = object_names(places.pool, new.topic)
    namespace, _, pool_name = places.pool.partition("/")
    spec: Object = {
        "partitions": counts.partitions,
        "replicationFactor": counts.replicas,
        "brokerPool": pool_name,
        "deletionPolicy": new.deletion_policy,
        "config": {name: canonical_value(name, new.config[name]) for name in sorted(new.config)},
    }
    name = names[min(name_choice, len(names) - 1)]
    if name != new.topic:
        spec["topicName"] = new.topic
    if new.assignments:
        spec["placement"] = placement_entries(dict(enumerate(new.assignments)))
    item = {
        "apiVersion": TOPIC.api_version,
        "kind": TOPIC.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {MADE_BY_LABEL: "kafka"},
            "annotations": {REQUEST_ANNOTATION: request_id},
        },
        "spec": spec,
    }
    sentences = validate(item)
    if sentences:
        return RequestRejected(ErrorCode.INVALID_REQUEST, "; ".join(sentences))
    return apply_defaults(item)


def placement_entries(placement: dict[int, tuple[BrokerId, ...]]) -> list[Object]:
    return [
        {"partition": number, "replicas": list(placement[number])} for number in sorted(placement)
    ]


def _counts(new: NewTopic, places: PoolPlacement) -> _Counts | RequestRejected:
    if new.assignments:
        return _assigned_counts(new, places)
    partitions, replicas = new.partition_count, new.replication_factor
    if partitions == DEFAULT_COUNT:
        partitions = places.default_partitions
    if not 1 <= partitions <= MAX_PARTITIONS:
        return RequestRejected(
            ErrorCode.INVALID_PARTITIONS,
            f"expected 1 to {MAX_PARTITIONS} partitions (or -1, the default), found {partitions}",
        )
    usable = len(places.usable)
    if replicas == DEFAULT_COUNT:
        replicas = max(1, min(DEFAULT_REPLICAS, usable))
    if not 1 <= replicas <= MAX_REPLICAS:
        return RequestRejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"expected a replication factor of 1 to {MAX_REPLICAS} (or -1, the default), found"
            f" {replicas}",
        )
    if replicas > usable:
        return RequestRejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replicas} needs {replicas} brokers, BrokerPool"
            f" {places.pool} has {usable} that accept replicas: use a lower factor, or raise"
            " its spec.replicas",
        )
    return _Counts(partitions, replicas)


def _assigned_counts(new: NewTopic, places: PoolPlacement) -> _Counts | RequestRejected:
    if new.partition_count != DEFAULT_COUNT or new.replication_factor != DEFAULT_COUNT:
        return RequestRejected(
            ErrorCode.INVALID_REQUEST,
            "expected either assignments or the numbers of partitions and replicas, found both",
        )
    rejection = assignments_error(new.assignments, places)
    if rejection is not None:
        return rejection
    return _Counts(len(new.assignments), len(new.assignments[0]))


def assignments_error(
    assignments: tuple[tuple[BrokerId, ...], ...], places: PoolPlacement
) -> RequestRejected | None:
    """Return the error of assignments, or None: distinct brokers of the pool, equally many each."""
    problem = ""
    if len(assignments) > MAX_PLACED:
        problem = f"expected assignments of at most {MAX_PLACED} partitions"
    for replicas in assignments:
        gone = sorted(set(replicas) - set(places.usable))
        if not replicas or len(replicas) > MAX_REPLICAS:
            problem = f"expected 1 to {MAX_REPLICAS} brokers for a partition"
        elif len(set(replicas)) != len(replicas):
            problem = f"expected distinct brokers for a partition, found {list(replicas)}"
        elif len(replicas) != len(assignments[0]):
            problem = "expected the same number of brokers for each partition"
        elif gone:
            problem = f"brokers {gone} are not in BrokerPool {places.pool}, or are draining"
        if problem:
            break
    return RequestRejected(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem) if problem else None
