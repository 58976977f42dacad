"""The rack of a broker: a label of the node that its pod runs on (BrokerPool `rackKey`).

A pod cannot read its node's labels without rights at the API server, and brokers have none; so the
operator looks, when a broker registers. I/O.
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
        """What the broker itself says where its pool has no `rackKey`; "" where the node has no
        such label. Raises StoreError, but for a right that is lacking: better no rack than no
        broker."""
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
                "a node's labels cannot be read: its brokers count as without a rack; give the"
                " operator the right to get nodes (chart value rackAwareness)",
                extra={"node": node_name, "error": str(error)},
            )
            return ""
        labels = {} if node is None else node["metadata"].get("labels") or {}
        rack: str = labels.get(key, "")
        return rack
