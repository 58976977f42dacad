"""Answer requests about ACLs from RBAC: what the client may do, and which Role to write instead.

DescribeAcls shows what the client itself may do: on the resource that is named, else on all of a
kind and on the first MAX_DESCRIBED_TOPICS topics that it may describe. What other users may
do is known to Kubernetes only.
"""

from collections.abc import Iterator

from tidemark_protocol.access_messages import Access, ResourceKind, Verb
from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.kafka.apis.access_rule import Asks, Decision, Scope, visible
from tidemark_broker.kafka_wire.messages.acls import (
    ALLOW,
    ANY_OPERATION,
    ANY_PERMISSION,
    CLUSTER_NAME,
    LITERAL,
    AclResource,
)
from tidemark_broker.kafka_wire.messages.authorized_operations import OPERATIONS
from tidemark_broker.kafka_wire.messages.schema import Values
from tidemark_broker.security.role_text import rule_of

EVERY = "*"  # Kafka's name of all resources
MAX_DESCRIBED_TOPICS = 100

_KINDS = {
    AclResource.TOPIC: ResourceKind.TOPIC,
    AclResource.GROUP: ResourceKind.GROUP,
    AclResource.CLUSTER: ResourceKind.POOL,
}
_VERBS = {
    AclResource.TOPIC: tuple(OPERATIONS),
    AclResource.GROUP: (Verb.CONSUME, Verb.DESCRIBE, Verb.ALTER, Verb.DELETE),
    AclResource.CLUSTER: (Verb.DESCRIBE, Verb.ALTER),
}


def describe_acls(asks: Asks, requested: Values, scope: Scope) -> Decision:
    """Return the client's own accesses in the form of ACLs."""
    own = f"User:{asks.principal.name}"
    if requested["principal"] not in (None, own):
        message = (
            f"only what {own} itself may do is known here: for others use"
            " kubectl auth can-i --list --as=USER"
        )
        return Decision(
            None, values={"error": ErrorCode.POLICY_VIOLATION, "error_message": message}
        )
    found = []
    if requested["permission"] in (ANY_PERMISSION, ALLOW):
        for resource_type, name in _resources(asks, requested, scope):
            operations = _operations(asks, resource_type, name, scope)
            acls = tuple(
                {"principal": own, "host": "*", "operation": operation, "permission": ALLOW}
                for operation in operations
                if requested["operation"] in (ANY_OPERATION, operation)
            )
            if acls:
                found.append(
                    {
                        "resource_type": resource_type,
                        "resource": name,
                        "pattern_type": LITERAL,
                        "acls": acls,
                    }
                )
    values = {"error": ErrorCode.NONE, "error_message": None, "resources": tuple(found)}
    return Decision(None, values=values)


def _resources(asks: Asks, requested: Values, scope: Scope) -> Iterator[tuple[AclResource, str]]:
    wanted = requested["resource_type"]
    for resource_type in _KINDS:
        if wanted not in (AclResource.ANY, resource_type):
            continue
        if resource_type is AclResource.CLUSTER:
            if requested["resource"] in (None, CLUSTER_NAME):
                yield resource_type, CLUSTER_NAME
        elif requested["resource"] is not None:
            yield resource_type, requested["resource"]
        else:
            yield resource_type, EVERY
            if resource_type is AclResource.TOPIC:
                names = visible(asks, ResourceKind.TOPIC, scope.visible_topics())
                for name in names[:MAX_DESCRIBED_TOPICS]:
                    yield resource_type, name


def _operations(asks: Asks, resource_type: AclResource, name: str, scope: Scope) -> tuple[int, ...]:
    kind = _KINDS[resource_type]
    named = scope.pool if kind is ResourceKind.POOL else "" if name == EVERY else name
    verbs = [verb for verb in _VERBS[resource_type] if asks.sees(verb, kind, named)]
    return tuple(operation for verb in verbs for operation in OPERATIONS[verb])


def create_acls(asks: Asks, requested: Values, scope: Scope) -> Decision:
    results = tuple(_denied(_role_of(each, scope)) for each in requested["creations"])
    return Decision(None, values={"results": results})


def delete_acls(asks: Asks, requested: Values, scope: Scope) -> Decision:
    message = "there are no ACLs: delete the RoleBinding, or the rule of its Role, in Kubernetes"
    return Decision(None, values={"results": (_denied(message),) * len(requested["filters"])})


def _denied(message: str) -> Values:
    return {"error": ErrorCode.POLICY_VIOLATION, "error_message": message}


def _role_of(creation: Values, scope: Scope) -> str:
    """Return which Role has the effect of an ACL."""
    principal = creation["principal"].removeprefix("User:")[:249]
    no_role = (
        "there are no ACLs: write a Role for topics, consumergroups or brokerpools of tidemark.dev"
        f" and bind it to {principal}"
    )
    kind = _KINDS.get(creation["resource_type"])
    verb = next(
        (verb for verb, operations in OPERATIONS.items() if creation["operation"] in operations),
        None,
    )
    if kind is None or verb is None or creation["permission"] != ALLOW:
        return no_role
    name = creation["resource"][:249]
    named = scope.pool if kind is ResourceKind.POOL else "" if name == EVERY else name
    if creation["pattern_type"] != LITERAL:
        return no_role + "; a rule names resources in full, it knows no prefixes"
    rule = rule_of(Access(verb, kind, named))
    return f"there are no ACLs: write a Role with the rule {rule} and bind it to {principal}"
