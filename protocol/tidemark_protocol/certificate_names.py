"""Name controllers and brokers in certificates.

Each certificate has one such name among its DNS names, and peers verify that name, never an
address: pods get other addresses, and an address is no identity. `.internal` is reserved for
private use, so no name service resolves these names.
"""

import re

from tidemark_protocol.ids import BrokerId

INTERNAL_DOMAIN = "tidemark.internal"
CONTROLLER_NAME = f"controller.{INTERNAL_DOMAIN}"
_BROKER = re.compile(r"broker-(0|[1-9][0-9]{0,6})\.([-a-z0-9.]+)\.([-a-z0-9]+)\.tidemark\.internal")


def broker_certificate_name(pool: str, broker_id: BrokerId) -> str:
    """Return the name of a broker; `pool` is namespace/name."""
    namespace, _, name = pool.partition("/")
    return f"broker-{broker_id}.{name}.{namespace}.tidemark.internal"


def broker_of_certificate_name(name: str) -> tuple[str, BrokerId] | None:
    """Return pool and id of the broker that has this name, or None if no broker has it."""
    found = _BROKER.fullmatch(name)
    if found is None:
        return None
    broker_id, pool, namespace = found.groups()
    return f"{namespace}/{pool}", BrokerId(int(broker_id))
