"""Define the bit fields of `authorized_operations` (KIP-430).

At a listener without authentication every operation that Kafka defines for a kind of resource is
allowed, as in Kafka without an authorizer (AclEntry.supportedOperations). At others they are the
operations of the RBAC verbs that the client has. NOT_REQUESTED is the value when the request did
not ask for them.
"""

from collections.abc import Collection, Iterable, Mapping

from tidemark_protocol.access_messages import Verb

NOT_REQUESTED = -(2**31)

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12

OPERATIONS: Mapping[Verb, tuple[int, ...]] = {
    Verb.CONSUME: (READ,),
    Verb.PRODUCE: (WRITE,),
    Verb.CREATE: (CREATE,),
    Verb.DELETE: (DELETE,),
    Verb.ALTER: (ALTER, ALTER_CONFIGS),
    Verb.DESCRIBE: (DESCRIBE, DESCRIBE_CONFIGS),
}


def _bits(operations: Iterable[int]) -> int:
    return sum(1 << operation for operation in operations)


_CONFIGS = (DESCRIBE_CONFIGS, ALTER_CONFIGS)
OF_CLUSTER = _bits((CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, IDEMPOTENT_WRITE, *_CONFIGS))
OF_TOPIC = _bits((READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, *_CONFIGS))
OF_GROUP = _bits((READ, DELETE, DESCRIBE, *_CONFIGS))


def operations_of_topic(verbs: Collection[Verb]) -> int:
    return _operations(verbs) & OF_TOPIC


def operations_of_group(verbs: Collection[Verb]) -> int:
    return _operations(verbs) & OF_GROUP


def operations_of_cluster(verbs: Collection[Verb]) -> int:
    """Return the operations on the cluster; producer ids are allocated to every client."""
    return (_operations(verbs) | _bits((IDEMPOTENT_WRITE,))) & OF_CLUSTER


def _operations(verbs: Collection[Verb]) -> int:
    return _bits(operation for verb in verbs for operation in OPERATIONS[verb])
