"""Say which access each API needs, where its request has the names, and what a denial looks like.

The verbs are those of Kafka's own checks (KafkaApis), in terms of RBAC: Read is `consume`, Write is
`produce`, the operations on the cluster are those on the BrokerPool. Each verb is a question of its
own: unlike Kafka's Read and Write, `consume` and `produce` do not imply `describe`, so that
`kubectl auth can-i` gives the same results.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidemark_protocol.access_messages import ResourceKind, Verb
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import TopicId
from tidemark_protocol.topic_names import topic_name_fault

from tidemark_broker.kafka.apis.access_rule import Asks, Decision, Rule, Scope, as_it_is, visible
from tidemark_broker.kafka.apis.acl_rules import create_acls, delete_acls, describe_acls
from tidemark_broker.kafka.apis.config_descriptions import ResourceType
from tidemark_broker.kafka_wire.messages import frames
from tidemark_broker.kafka_wire.messages.authorized_operations import (
    NOT_REQUESTED,
    operations_of_cluster,
    operations_of_group,
    operations_of_topic,
)
from tidemark_broker.kafka_wire.messages.schema import ZERO_TOPIC_ID, Values

TOPIC, GROUP, POOL = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.POOL
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_GROUP_KEY = 0  # of FindCoordinator
_FIRST_FIND_OF_MANY = 4
_FIRST_FETCH_OF_GROUPS = 8
_FIRST_OFFSETS_WITH_TOPIC_IDS = 10


@dataclass(frozen=True, slots=True)
class RequiredAccess:
    """The access that an API needs; `needs` is its row in docs/user/authorization.md."""

    needs: str
    rule: Rule
    is_admin: bool = False  # it changes topics, groups or the pool: performed actions are logged


# ---- rules of one shape


def _unchecked(asks: Asks, requested: Values, scope: Scope) -> Decision:
    return Decision(requested)


def _on_cluster(verb: Verb, denied: Callable[[Values, str], Values]) -> Rule:
    """Return a rule that denies the whole request."""

    def rule(asks: Asks, requested: Values, scope: Scope) -> Decision:
        if asks.may(verb, POOL, scope.pool):
            return Decision(requested)
        return Decision(None, values=denied(requested, asks.denial(verb, POOL, scope.pool)))

    return rule


def _whole(requested: Values, message: str) -> Values:
    """Return a response whose error is its own; its arrays are empty."""
    return {
        "error": NO_CLUSTER,
        "error_message": message,
        "message": message,
        "topics": (),
        "directories": (),
        "entries": None,
    }


def _each_place(requested: Values, message: str) -> Values:
    topics = requested["topics"] or ()
    failed = [_failed_topic(topic, NO_CLUSTER, message) for topic in topics]
    return {"error": NO_CLUSTER, "topics": tuple(failed)}


def _each_place_of_directories(requested: Values, message: str) -> Values:
    topics = [topic for directory in requested["directories"] for topic in directory["topics"]]
    return {"topics": tuple(_failed_topic(topic, NO_CLUSTER, message) for topic in topics)}


def _each_entry(requested: Values, message: str) -> Values:
    error = {"error": NO_CLUSTER, "error_message": message}
    return {"entries": tuple(error | {"entity": each["entity"]} for each in requested["entries"])}


def _failed_topic(topic: Values, error: ErrorCode, message: str | None = None) -> Values:
    """Return a topic of the response all of whose partitions have the error."""
    failed: Values = {"error": error, "error_message": message, "message": message}
    failed["low_watermark"] = -1
    return {
        "topic": topic.get("topic") or "",
        "topic_id": topic.get("topic_id") or ZERO_TOPIC_ID,
        "partitions": tuple(
            failed | {"partition": each["partition"] if isinstance(each, dict) else each}
            for each in topic["partitions"]
        ),
    }


def _on_partitions(verb: Verb) -> Rule:
    """Return a rule for requests of topics with partitions: each denied partition has an error."""

    def rule(asks: Asks, requested: Values, scope: Scope) -> Decision:
        allowed, denied = _split_topics(asks, verb, requested["topics"], scope)
        if not denied:
            return Decision(requested)

        def complete(asks: Asks, values: Values) -> Values:
            return values | {"topics": (*values["topics"], *denied)}

        return Decision(requested | {"topics": allowed}, complete)

    return rule


def _split_topics(
    asks: Asks, verb: Verb, topics: Iterable[Values], scope: Scope
) -> tuple[tuple[Values, ...], tuple[Values, ...]]:
    """Return the topics that are allowed, and the denied ones with their errors.

    A topic whose id is unknown is left to the handler.
    """
    allowed: list[Values] = []
    denied: list[Values] = []
    for topic in topics:
        name = topic.get("topic") or scope.name_of(topic.get("topic_id") or ZERO_TOPIC_ID)
        is_unknown = not name and topic.get("topic") is None
        if is_unknown or asks.may(verb, TOPIC, name):
            allowed.append(topic)
        else:
            denied.append(_failed_topic(topic, NO_TOPIC, asks.denial(verb, TOPIC, name)))
    return tuple(allowed), tuple(denied)


def _on_group(verb: Verb) -> Rule:
    """Return a rule for a request of one group, whose response has an error of its own."""

    def rule(asks: Asks, requested: Values, scope: Scope) -> Decision:
        if asks.may(verb, GROUP, requested["group_id"]):
            return Decision(requested)
        return Decision(None, values={"error": NO_GROUP, "protocol_type": None, "protocol": ""})

    return rule


def _on_topic_changes(verb: Verb) -> Rule:
    """Return a rule for requests that change topics as a whole."""

    def rule(asks: Asks, requested: Values, scope: Scope) -> Decision:
        topics = requested["topics"]
        denied = {each["topic"] for each in topics if not asks.may(verb, TOPIC, each["topic"])}
        allowed = tuple(each for each in topics if each["topic"] not in denied)
        failed = tuple(
            {
                "topic": name,
                "error": NO_TOPIC,
                "error_message": asks.denial(verb, TOPIC, name),
                "configs": (),
            }
            for name in dict.fromkeys(each["topic"] for each in topics)
            if name in denied
        )

        def complete(asks: Asks, values: Values) -> Values:
            found = tuple(_without_unseen_configs(asks, each) for each in values["topics"])
            return values | {"topics": (*found, *failed)}

        return Decision(requested | {"topics": allowed}, complete)

    return rule


def _without_unseen_configs(asks: Asks, created: Values) -> Values:
    """Leave out what only `describe` shows of a topic that was created (KIP-525)."""
    has_configs = created["error"] is ErrorCode.NONE and "configs" in created
    if not has_configs or asks.sees(Verb.DESCRIBE, TOPIC, created["topic"]):
        return created
    hidden = {"partition_count": -1, "replication_factor": -1, "configs": None}
    return created | hidden | {"config_error": NO_TOPIC}


# ---- topics


def _delete_topics(asks: Asks, requested: Values, scope: Scope) -> Decision:
    failed: list[Values] = []

    def is_allowed(name: str, topic_id: TopicId, shown: str | None) -> bool:
        if asks.may(Verb.DELETE, TOPIC, name):
            return True
        message = asks.denial(Verb.DELETE, TOPIC, shown or "")
        failed.append(
            {"topic": shown, "topic_id": topic_id, "error": NO_TOPIC, "error_message": message}
        )
        return False

    def is_entry_allowed(entry: Values) -> bool:
        if entry["topic"] is not None:
            return is_allowed(entry["topic"], ZERO_TOPIC_ID, entry["topic"])
        name = scope.name_of(entry["topic_id"])
        return not name or is_allowed(name, entry["topic_id"], None)  # ids tell no names

    topics = tuple(entry for entry in requested["topics"] if is_entry_allowed(entry))
    names = tuple(name for name in requested["names"] if is_allowed(name, ZERO_TOPIC_ID, name))

    def complete(asks: Asks, values: Values) -> Values:
        return values | {"topics": (*values["topics"], *failed)}

    return Decision(requested | {"topics": topics, "names": names}, complete)


_TOPIC_VERBS = (
    Verb.CONSUME,
    Verb.PRODUCE,
    Verb.CREATE,
    Verb.DELETE,
    Verb.ALTER,
    Verb.DESCRIBE,
)
_GROUP_VERBS = (Verb.CONSUME, Verb.DELETE, Verb.DESCRIBE, Verb.ALTER)


def _topic_operations(asks: Asks, name: str) -> int:
    return operations_of_topic([verb for verb in _TOPIC_VERBS if asks.sees(verb, TOPIC, name)])


def _group_operations(asks: Asks, name: str) -> int:
    return operations_of_group([verb for verb in _GROUP_VERBS if asks.sees(verb, GROUP, name)])


def _cluster_operations(asks: Asks, scope: Scope) -> int:
    verbs = [verb for verb in (Verb.ALTER, Verb.DESCRIBE) if asks.sees(verb, POOL, scope.pool)]
    if asks.sees(Verb.CREATE, TOPIC, ""):
        verbs.append(Verb.CREATE)
    return operations_of_cluster(verbs)


def _metadata(asks: Asks, requested: Values, scope: Scope) -> Decision:
    seen: tuple[Values, ...] | None  # None: all
    has_all = requested["topics"] is None or (scope.version == 0 and not requested["topics"])
    failed: list[Values] = []
    if has_all and asks.sees_every(Verb.DESCRIBE, TOPIC):
        seen, asked = None, requested
    elif has_all:
        names = visible(asks, TOPIC, scope.visible_topics())
        seen = tuple({"topic": name, "topic_id": ZERO_TOPIC_ID} for name in names)
        # Named, so that none is told that came meanwhile; and none of them is created again.
        asked = requested | {"topics": seen, "allow_auto_topic_creation": False}
    else:
        seen = tuple(
            entry for entry in requested["topics"] if _is_shown(asks, entry, scope, failed)
        )
        may_create = requested["allow_auto_topic_creation"] and scope.creates_topics
        if may_create:
            seen = tuple(
                entry for entry in seen if _may_be_created(asks, entry["topic"], scope, failed)
            )
        asked = requested | {"topics": seen}
    shows_operations = requested["include_topic_authorized_operations"]

    def complete(asks: Asks, values: Values) -> Values:
        found: Sequence[Values] = values["topics"]
        if seen == ():  # version 0 takes an empty array for all topics
            found = ()
        elif shows_operations:
            found = _with_operations(asks, found)
        operations = NOT_REQUESTED
        if requested["include_cluster_authorized_operations"]:
            operations = _cluster_operations(asks, scope)
        topics = found if not failed else (*found, *failed)
        return values | {"topics": topics, "cluster_authorized_operations": operations}

    return Decision(asked, complete)


def _is_shown(asks: Asks, entry: Values, scope: Scope, failed: list[Values]) -> bool:
    """Return whether a topic's metadata is shown, else add the error that is shown instead.

    It is the same for a topic that does not exist. Ids are told, as in Kafka; the names of ids not.
    """
    name = entry["topic"]
    if name is None:
        known = scope.name_of(entry["topic_id"])
        if not known or asks.may(Verb.DESCRIBE, TOPIC, known):
            return True
        failed.append(_hidden_topic(None, entry["topic_id"]))
        return False
    if asks.may(Verb.DESCRIBE, TOPIC, name):
        return True
    failed.append(_hidden_topic(name, ZERO_TOPIC_ID))
    return False


def _may_be_created(asks: Asks, name: str | None, scope: Scope, failed: list[Values]) -> bool:
    """Return whether a topic exists, or may be created for this client."""
    is_there = name is None or name in scope.metadata.topics or bool(topic_name_fault(name))
    if is_there or asks.may(Verb.CREATE, TOPIC, name or ""):
        return True
    failed.append(_hidden_topic(name, ZERO_TOPIC_ID))
    return False


def _hidden_topic(name: str | None, topic_id: TopicId) -> Values:
    return {
        "error": NO_TOPIC,
        "topic": name,
        "topic_id": topic_id,
        "is_internal": False,
        "partitions": (),
    }


def _with_operations(asks: Asks, topics: Iterable[Values]) -> Sequence[Values]:
    return tuple(
        topic | {"authorized_operations": _topic_operations(asks, topic["topic"])}
        if topic["topic"] is not None and topic["error"] is not NO_TOPIC
        else topic
        for topic in topics
    )


def _describe_cluster(asks: Asks, requested: Values, scope: Scope) -> Decision:
    def complete(asks: Asks, values: Values) -> Values:
        if not requested["include_cluster_authorized_operations"]:
            return values
        return values | {"cluster_authorized_operations": _cluster_operations(asks, scope)}

    return Decision(requested, complete)


def _describe_topic_partitions(asks: Asks, requested: Values, scope: Scope) -> Decision:
    cursor = requested["cursor"]
    first = "" if cursor is None else cursor["topic"]
    failed: list[Values] = []

    def complete(asks: Asks, values: Values) -> Values:
        return values | {"topics": (*_with_operations(asks, values["topics"]), *failed)}

    if not requested["topics"] and asks.sees_every(Verb.DESCRIBE, TOPIC):
        return Decision(requested, complete)
    if requested["topics"]:
        named = tuple(each for each in requested["topics"] if each["topic"] >= first)
        seen = tuple(each for each in named if _is_shown(asks, _named(each), scope, failed))
    else:
        names = visible(asks, TOPIC, scope.visible_topics())
        seen = tuple({"topic": name} for name in names if name >= first)
    if not seen:  # an empty array means all topics
        return Decision(None, values={"topics": tuple(failed), "next_cursor": None})
    return Decision(requested | {"topics": seen}, complete)


def _named(entry: Values) -> Values:
    return entry | {"topic_id": ZERO_TOPIC_ID}


# ---- configs


def _on_resources(verb: Verb) -> Rule:
    """Return a rule for requests of configs: topics, groups, and the pool for all else."""

    def rule(asks: Asks, requested: Values, scope: Scope) -> Decision:
        allowed: list[Values] = []
        failed: list[Values] = []
        for each in requested["resources"]:
            kind, name, error = _resource(each, scope)
            if asks.may(verb, kind, name):
                allowed.append(each)
            else:
                failed.append(
                    {
                        "resource_type": each["resource_type"],
                        "resource": each["resource"],
                        "error": error,
                        "error_message": asks.denial(verb, kind, name),
                    }
                )

        def complete(asks: Asks, values: Values) -> Values:
            return values | {"resources": (*values["resources"], *failed)}

        return Decision(requested | {"resources": tuple(allowed)}, complete if failed else as_it_is)

    return rule


def _resource(resource: Values, scope: Scope) -> tuple[ResourceKind, str, ErrorCode]:
    if resource["resource_type"] == ResourceType.TOPIC:
        return TOPIC, resource["resource"], NO_TOPIC
    if resource["resource_type"] == ResourceType.GROUP:
        return GROUP, resource["resource"], NO_GROUP
    return POOL, scope.pool, NO_CLUSTER


# ---- groups


def _find_coordinator(asks: Asks, requested: Values, scope: Scope) -> Decision:
    if requested["key_type"] != _GROUP_KEY:
        return Decision(requested)  # there are no others

    def failed(key: str) -> Values:
        message = asks.denial(Verb.DESCRIBE, GROUP, key)
        nobody = {"broker_id": -1, "host": "", "port": -1}
        return {"key": key, "error": NO_GROUP, "message": message, **nobody}

    if scope.version < _FIRST_FIND_OF_MANY:
        if asks.may(Verb.DESCRIBE, GROUP, requested["key"]):
            return Decision(requested)
        return Decision(None, values=failed(requested["key"]))
    denied = [key for key in requested["keys"] if not asks.may(Verb.DESCRIBE, GROUP, key)]
    if not denied:
        return Decision(requested)
    keys = tuple(key for key in requested["keys"] if key not in denied)

    def complete(asks: Asks, values: Values) -> Values:
        found = values["coordinators"]
        return values | {"coordinators": (*found, *map(failed, denied))}

    return Decision(requested | {"keys": keys}, complete)


def _on_groups(verb: Verb, *, shows_operations: bool = False) -> Rule:
    """Return a rule for a list of groups."""

    def rule(asks: Asks, requested: Values, scope: Scope) -> Decision:
        groups = tuple(dict.fromkeys(requested["groups"]))
        denied = [name for name in groups if not asks.may(verb, GROUP, name)]
        allowed = tuple(name for name in groups if name not in denied)
        failed = tuple(
            {"group_id": name, "error": NO_GROUP, "message": asks.denial(verb, GROUP, name)}
            for name in denied
        )

        def complete(asks: Asks, values: Values) -> Values:
            found: Iterable[Values] = values["groups"]
            if shows_operations and requested["include_authorized_operations"]:
                found = tuple(_with_group_operations(asks, each) for each in found)
            return values | {"groups": (*found, *failed)}

        return Decision(requested | {"groups": allowed}, complete)

    return rule


def _with_group_operations(asks: Asks, group: Values) -> Values:
    if group["authorized_operations"] == NOT_REQUESTED:
        return group
    return group | {"authorized_operations": _group_operations(asks, group["group_id"])}


def _list_groups(asks: Asks, requested: Values, scope: Scope) -> Decision:
    def complete(asks: Asks, values: Values) -> Values:
        if "groups" not in values or asks.sees(Verb.DESCRIBE, POOL, scope.pool):
            return values
        groups = {each["group_id"]: each for each in values["groups"]}
        return values | {"groups": tuple(groups[name] for name in visible(asks, GROUP, [*groups]))}

    return Decision(requested, complete)


def _offset_commit(asks: Asks, requested: Values, scope: Scope) -> Decision:
    if not asks.may(Verb.CONSUME, GROUP, requested["group_id"]):
        failed = [_failed_topic(topic, NO_GROUP) for topic in requested["topics"]]
        return Decision(None, values={"topics": tuple(failed)})
    return _on_partitions(Verb.CONSUME)(asks, requested, scope)


def _offset_delete(asks: Asks, requested: Values, scope: Scope) -> Decision:
    if not asks.may(Verb.DELETE, GROUP, requested["group_id"]):
        return Decision(None, values={"error": NO_GROUP})

    decision = _on_partitions(Verb.CONSUME)(asks, requested, scope)

    def complete(asks: Asks, values: Values) -> Values:
        return values if values["error"] is not ErrorCode.NONE else decision.complete(asks, values)

    return Decision(decision.requested, complete)


def _offset_fetch(asks: Asks, requested: Values, scope: Scope) -> Decision:
    if scope.version >= _FIRST_FETCH_OF_GROUPS:
        return _fetch_of_groups(asks, requested, scope)
    if not asks.may(Verb.DESCRIBE, GROUP, requested["group_id"]):
        failed = [_failed_topic(topic, NO_GROUP) for topic in requested["topics"] or ()]
        # Before version 2 there is only the error of each partition.
        return Decision(None, values={"error": NO_GROUP, "topics": tuple(failed)})
    allowed, denied = _split_or_all(asks, requested["topics"], scope)

    def complete(asks: Asks, values: Values) -> Values:
        return _shown_offsets(asks, values, requested["topics"], denied)

    return Decision(requested | {"topics": allowed}, complete)


def _fetch_of_groups(asks: Asks, requested: Values, scope: Scope) -> Decision:
    denied: dict[str, tuple[Values, ...]] = {}
    asked: dict[str, Sequence[Values] | None] = {}
    groups: list[Values] = []
    failed: list[Values] = []
    for group in requested["groups"]:
        name = group["group_id"]
        if not asks.may(Verb.DESCRIBE, GROUP, name):
            failed.append({"group_id": name, "topics": (), "error": NO_GROUP})
            continue
        allowed, more = _split_or_all(asks, group["topics"], scope)
        denied[name] = (*denied.get(name, ()), *more)
        asked[name] = None if None in (group["topics"], asked.get(name, ())) else group["topics"]
        groups.append(group | {"topics": allowed})

    def complete(asks: Asks, values: Values) -> Values:
        found = [
            _shown_offsets(asks, group, asked[group["group_id"]], denied[group["group_id"]])
            for group in values["groups"]
        ]
        return values | {"groups": (*found, *failed)}

    return Decision(requested | {"groups": tuple(groups)}, complete)


def _split_or_all(
    asks: Asks, topics: Sequence[Values] | None, scope: Scope
) -> tuple[tuple[Values, ...] | None, tuple[Values, ...]]:
    return (None, ()) if topics is None else _split_topics(asks, Verb.DESCRIBE, topics, scope)


def _shown_offsets(
    asks: Asks, group: Values, topics: Sequence[Values] | None, denied: tuple[Values, ...]
) -> Values:
    """Add what was denied; of all offsets of a group show those of topics that are described."""
    found: Iterable[Values] = group["topics"]
    if topics is None:
        found = [each for each in found if asks.sees(Verb.DESCRIBE, TOPIC, each["topic"])]
    if group["error"] is not ErrorCode.NONE:
        return group
    return group | {"topics": (*found, *denied)}


# ---- the table

REQUIRED_ACCESS: Mapping[int, RequiredAccess] = {
    frames.PRODUCE: RequiredAccess("produce topics/{topic}", _unchecked),
    frames.FETCH: RequiredAccess("consume topics/{topic}", _unchecked),
    frames.LIST_OFFSETS: RequiredAccess("describe topics/{topic}", _on_partitions(Verb.DESCRIBE)),
    frames.METADATA: RequiredAccess(
        "describe topics/{topic}; create topics/{topic} for one that is created by it", _metadata
    ),
    frames.OFFSET_COMMIT: RequiredAccess(
        "consume consumergroups/{group} and consume topics/{topic}", _offset_commit
    ),
    frames.OFFSET_FETCH: RequiredAccess(
        "describe consumergroups/{group} and describe topics/{topic}", _offset_fetch
    ),
    frames.FIND_COORDINATOR: RequiredAccess("describe consumergroups/{group}", _find_coordinator),
    frames.JOIN_GROUP: RequiredAccess("consume consumergroups/{group}", _on_group(Verb.CONSUME)),
    frames.HEARTBEAT: RequiredAccess("consume consumergroups/{group}", _on_group(Verb.CONSUME)),
    frames.LEAVE_GROUP: RequiredAccess("consume consumergroups/{group}", _on_group(Verb.CONSUME)),
    frames.SYNC_GROUP: RequiredAccess("consume consumergroups/{group}", _on_group(Verb.CONSUME)),
    frames.DESCRIBE_GROUPS: RequiredAccess(
        "describe consumergroups/{group}", _on_groups(Verb.DESCRIBE, shows_operations=True)
    ),
    frames.LIST_GROUPS: RequiredAccess(
        "describe brokerpools/{pool}, else those with describe consumergroups/{group}",
        _list_groups,
    ),
    frames.SASL_HANDSHAKE: RequiredAccess("none", _unchecked),
    frames.API_VERSIONS: RequiredAccess("none", _unchecked),
    frames.CREATE_TOPICS: RequiredAccess(
        "create topics/{topic}", _on_topic_changes(Verb.CREATE), is_admin=True
    ),
    frames.DELETE_TOPICS: RequiredAccess("delete topics/{topic}", _delete_topics, is_admin=True),
    frames.DELETE_RECORDS: RequiredAccess(
        "delete topics/{topic}", _on_partitions(Verb.DELETE), is_admin=True
    ),
    frames.SASL_AUTHENTICATE: RequiredAccess("none", _unchecked),
    # Kafka: Write on any topic. An id alone writes nothing.
    frames.INIT_PRODUCER_ID: RequiredAccess("none", _unchecked),
    frames.OFFSET_FOR_LEADER_EPOCH: RequiredAccess(
        "describe topics/{topic}", _on_partitions(Verb.DESCRIBE)
    ),
    frames.DESCRIBE_ACLS: RequiredAccess("none: the client's own accesses", describe_acls),
    frames.CREATE_ACLS: RequiredAccess("not possible: write a Role", create_acls),
    frames.DELETE_ACLS: RequiredAccess("not possible: delete a RoleBinding", delete_acls),
    frames.DESCRIBE_CONFIGS: RequiredAccess(
        "describe topics/{topic}, consumergroups/{group} or brokerpools/{pool}",
        _on_resources(Verb.DESCRIBE),
    ),
    frames.ALTER_CONFIGS: RequiredAccess(
        "alter topics/{topic}, consumergroups/{group} or brokerpools/{pool}",
        _on_resources(Verb.ALTER),
        is_admin=True,
    ),
    frames.ALTER_REPLICA_LOG_DIRS: RequiredAccess(
        "alter brokerpools/{pool}",
        _on_cluster(Verb.ALTER, _each_place_of_directories),
        is_admin=True,
    ),
    frames.DESCRIBE_LOG_DIRS: RequiredAccess(
        "describe brokerpools/{pool}", _on_cluster(Verb.DESCRIBE, _whole)
    ),
    frames.CREATE_PARTITIONS: RequiredAccess(
        "alter topics/{topic}", _on_topic_changes(Verb.ALTER), is_admin=True
    ),
    frames.DELETE_GROUPS: RequiredAccess(
        "delete consumergroups/{group}", _on_groups(Verb.DELETE), is_admin=True
    ),
    frames.ELECT_LEADERS: RequiredAccess(
        "alter brokerpools/{pool}", _on_cluster(Verb.ALTER, _each_place), is_admin=True
    ),
    frames.INCREMENTAL_ALTER_CONFIGS: RequiredAccess(
        "alter topics/{topic}, consumergroups/{group} or brokerpools/{pool}",
        _on_resources(Verb.ALTER),
        is_admin=True,
    ),
    frames.ALTER_PARTITION_REASSIGNMENTS: RequiredAccess(
        "alter brokerpools/{pool}", _on_cluster(Verb.ALTER, _whole), is_admin=True
    ),
    frames.LIST_PARTITION_REASSIGNMENTS: RequiredAccess(
        "describe brokerpools/{pool}", _on_cluster(Verb.DESCRIBE, _whole)
    ),
    frames.OFFSET_DELETE: RequiredAccess(
        "delete consumergroups/{group} and consume topics/{topic}", _offset_delete, is_admin=True
    ),
    frames.DESCRIBE_CLIENT_QUOTAS: RequiredAccess(
        "describe brokerpools/{pool}", _on_cluster(Verb.DESCRIBE, _whole)
    ),
    frames.ALTER_CLIENT_QUOTAS: RequiredAccess(
        "alter brokerpools/{pool}", _on_cluster(Verb.ALTER, _each_entry), is_admin=True
    ),
    frames.DESCRIBE_QUORUM: RequiredAccess(
        "describe brokerpools/{pool}", _on_cluster(Verb.DESCRIBE, _whole)
    ),
    frames.DESCRIBE_CLUSTER: RequiredAccess("none", _describe_cluster),
    frames.DESCRIBE_PRODUCERS: RequiredAccess(
        "consume topics/{topic}", _on_partitions(Verb.CONSUME)
    ),
    frames.LIST_CONFIG_RESOURCES: RequiredAccess(
        "describe brokerpools/{pool}", _on_cluster(Verb.DESCRIBE, _whole)
    ),
    frames.DESCRIBE_TOPIC_PARTITIONS: RequiredAccess(
        "describe topics/{topic}", _describe_topic_partitions
    ),
}
