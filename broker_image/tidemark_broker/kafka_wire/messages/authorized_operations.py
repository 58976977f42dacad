"""Define the bit fields of `authorized_operations` (KIP-430).

There is no authentication, so every operation that Kafka defines for a kind of resource is allowed,
as in Kafka without an authorizer (AclEntry.supportedOperations). NOT_REQUESTED is the value when
the request did not ask for them.
"""

from collections.abc import Iterable

NOT_REQUESTED = -(2**31)

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 9, 10, 11, 12


def _bits(operations: Iterable[int]) -> int:
    return sum(1 << operation for operation in operations)


_CONFIGS = (_DESCRIBE_CONFIGS, _ALTER_CONFIGS)
OF_CLUSTER = _bits((_CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _IDEMPOTENT_WRITE, *_CONFIGS))
OF_TOPIC = _bits((_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, *_CONFIGS))
OF_GROUP = _bits((_READ, _DELETE, _DESCRIBE, *_CONFIGS))
