"""Leave out watched namespaces in which this operator has no rights.

So the others keep their controller. Rights of a namespace are a Role in it, and are deleted with
it. A part of all objects that cannot be read must not stop a reader of all of them, nor may it look
like an empty part (S12). So what is left out is fixed for the life of a process, which rejects
everything there by itself; once there are rights again the process ends, and the next one reads it
with all others.
"""

import asyncio
import logging
from collections.abc import Iterable

from tidemark_operator.api.kinds import BROKER_POOL
from tidemark_operator.store.object_store import Forbidden, ObjectStore, StoreError

log = logging.getLogger(__name__)

LOOKS = 5  # rights that were just made take a moment to be known to every API server
SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_TO_NEXT_LOOK = 30.0


class NamespaceAccessRestored(Exception):
    """An error that ends the process: there are rights in a namespace that was left out."""


async def find_forbidden(
    store: ObjectStore, namespaces: Iterable[str], *, pause_s: float = SECONDS_BETWEEN_LOOKS
) -> frozenset[str]:
    """Return the namespaces that stay forbidden; one without an answer is not among them."""
    closed = frozenset(namespaces)
    for look in range(LOOKS):
        if look and closed:
            await asyncio.sleep(pause_s)
        closed = frozenset([each for each in sorted(closed) if await _is_closed(store, each)])
    for namespace in sorted(closed):
        log.error(
            "namespace not watched, no permissions in it: remove it from watchNamespaces if"
            " it was deleted",
            extra={"namespace": namespace},
        )
    return closed


async def wait_until_open(
    store: ObjectStore, closed: frozenset[str], *, pause_s: float = SECONDS_TO_NEXT_LOOK
) -> NamespaceAccessRestored:
    """Wait until there are rights in one of them; `store` leaves out nothing."""
    while True:
        await asyncio.sleep(pause_s)
        for namespace in sorted(closed):
            try:
                await store.list(BROKER_POOL, namespace)
            except StoreError:
                continue
            return NamespaceAccessRestored(f"permissions in namespace {namespace} are restored")


async def _is_closed(store: ObjectStore, namespace: str) -> bool:
    try:
        await store.list(BROKER_POOL, namespace)
    except Forbidden:
        return True
    except StoreError as error:
        log.warning("namespace not reachable", extra={"namespace": namespace, "error": str(error)})
    return False
