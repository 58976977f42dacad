"""Audits beside the rest: one queue serves all kinds."""

import logging

from tidemark_operator.audits.reconciler import AuditReconciler
from tidemark_operator.reconcile.reconciler import Reconciler
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.stores.object_store import REPLICATION_AUDIT, NotFound

log = logging.getLogger(__name__)


class WithAudits:
    """`KeyReconciler` of the operator on Kubernetes."""

    def __init__(self, brokers: Reconciler, audits: AuditReconciler) -> None:
        self._brokers = brokers
        self._audits = audits

    async def reconcile(self, key: WorkKey) -> int | None:
        if key.kind == REPLICATION_AUDIT.kind:
            return await self._audits.reconcile(key)
        return await self._brokers.reconcile(key)

    async def all_keys(self, namespace: str | None) -> tuple[WorkKey, ...]:
        keys = await self._brokers.all_keys(namespace)
        try:
            return (*keys, *await self._audits.all_keys(namespace))
        except NotFound:
            # `helm upgrade` installs no CRDs: brokers are served all the same.
            log.warning(
                "the cluster knows no ReplicationAudits: kubectl apply the chart's"
                " crds/replicationaudits.yaml to have them"
            )
            return keys
