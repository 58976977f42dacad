"""Find the rack of a broker: a label of its pod's node (BrokerPool `rackKey`).

A pod cannot read its node's labels without rights at the API server, and brokers have none, so the
operator reads it when a broker registers.
"""

import logging

from tidemark_protocol.controller_messages import RegisterRequest

from tidemark_operator.api.kinds import BROKER_POOL, CLUSTER_SCOPE, NODE, POD
from tidemark_operator.resources.names import broker_name
from tidemark_operator.store.object_store import Forbidden, ObjectStore

log = logging.getLogger(__name__)


class NodeRacks:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def __call__(self, request: RegisterRequest) -> str:
        """Return the rack: the broker's own value without a `rackKey`, "" without such a label.

        Raises StoreError, except for a missing right: a broker without a rack is better than none.
        """
        namespace, _, name = request.pool.partition("/")
        pool = await self._store.get(BROKER_POOL, namespace, name)
        key = "" if pool is None else pool["spec"].get("rackKey", "")
        if not key:
            return request.rack
        pod = await self._store.get(POD, namespace, broker_name(name, request.broker_id))
        node_name = "" if pod is None else pod["spec"].get("nodeName", "")
        if not node_name:
            return ""
        try:
            node = await self._store.get(NODE, CLUSTER_SCOPE, node_name)
        except Forbidden as error:
            log.error(
                "node labels not readable, brokers have no rack: grant the operator the"
                " right to get nodes (chart value rackAwareness)",
                extra={"node": node_name, "error": str(error)},
            )
            return ""
        labels = {} if node is None else node["metadata"].get("labels") or {}
        rack: str = labels.get(key, "")
        return rack
