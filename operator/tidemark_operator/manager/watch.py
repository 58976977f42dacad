"""Watch manifests, and brokers' and audits' objects, with kopf in a thread of its own.

There are only `on.event` handlers, so kopf writes nothing to any object. A handler passes on an
object or a key (what happened is read from the store in its turn), or a pod's failure, which the
controller looks into. Handlers are coroutines, as kopf runs functions in threads of their own.

The sweeps of main.py find what a watch misses. PartitionSlices are not watched, as only the
controller writes them; a sweep finds one that is deleted by hand (S12). If kopf ends, `on_end` is
called and the process has to end: without watches it would miss every change.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import kopf

from tidemark_operator.api.kinds import (
    BROKER_POOL,
    POD,
    REPLICATION_AUDIT,
    TIDEMARK_GROUP,
    TOPIC,
    Object,
    ResourceKind,
)
from tidemark_operator.manager.kopf_watch import KopfWatch, new_registry
from tidemark_operator.manager.leadership import BrokerFailure
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.resources.audit_job import JOB_SELECTOR
from tidemark_operator.resources.audit_pod import audit_name_of
from tidemark_operator.resources.names import BROKER_SELECTOR, broker_id_of, pool_name_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    kind: ResourceKind
    item: Object
    is_deleted: bool  # `item` is then as it was


class ClusterWatch(KopfWatch):
    """Run the watches; the `on_...` callbacks are called in kopf's thread and must not block.

    `on_object` receives Topics and BrokerPools, `on_pod` the brokers' pods.
    """

    def __init__(
        self,
        *,
        namespaces: tuple[str, ...],
        on_object: Callable[[ObjectEvent], None],
        on_pod: Callable[[ObjectEvent], None],
        on_key: Callable[[WorkKey], None],
        on_trouble: Callable[[BrokerFailure], None],
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        super().__init__(namespaces, on_end, is_clusterwide=not namespaces)
        self._on_object = on_object
        self._on_pod = on_pod
        self._on_key = on_key
        self._on_trouble = on_trouble

    def _selectors(self) -> dict[tuple[str, str], str]:
        return {
            ("v1", "pods"): BROKER_SELECTOR,
            ("v1", "persistentvolumeclaims"): BROKER_SELECTOR,
            ("batch/v1", "jobs"): JOB_SELECTOR,
        }

    def _registry(self) -> kopf.OperatorRegistry:
        registry = new_registry()

        @kopf.on.event(TIDEMARK_GROUP, TOPIC.version, TOPIC.plural, registry=registry)
        async def on_topic(event: kopf.RawEvent, **_: Any) -> None:
            self._on_object(_object_event(TOPIC, event))

        @kopf.on.event(TIDEMARK_GROUP, BROKER_POOL.version, BROKER_POOL.plural, registry=registry)
        async def on_pool(event: kopf.RawEvent, **_: Any) -> None:
            self._on_object(_object_event(BROKER_POOL, event))

        audits = REPLICATION_AUDIT.plural

        @kopf.on.event(TIDEMARK_GROUP, REPLICATION_AUDIT.version, audits, registry=registry)
        async def on_audit(namespace: str | None, name: str | None, **_: Any) -> None:
            self._on_key(WorkKey(REPLICATION_AUDIT.kind, namespace or "", name or ""))

        @kopf.on.event("batch", "v1", "jobs", registry=registry)
        async def on_job(body: kopf.Body, namespace: str | None, **_: Any) -> None:
            audit = audit_name_of(dict(body))
            if audit is not None:
                self._on_key(WorkKey(REPLICATION_AUDIT.kind, namespace or "", audit))

        @kopf.on.event("v1", "pods", registry=registry)
        async def on_pod(event: kopf.RawEvent, namespace: str | None, **_: Any) -> None:
            self._on_pod(_object_event(POD, event))
            self._pass_on_pod(event["type"], dict(event["object"]), namespace or "")

        @kopf.on.event("v1", "persistentvolumeclaims", registry=registry)
        async def on_claim(body: kopf.Body, namespace: str | None, **_: Any) -> None:
            pool_name = pool_name_of(dict(body))
            if pool_name is not None:
                self._on_key(WorkKey(BROKER_POOL.kind, namespace or "", pool_name))

        return registry

    def _pass_on_pod(self, event_type: str | None, pod: Object, namespace: str) -> None:
        pool_name = pool_name_of(pod)
        if pool_name is None:
            return
        trouble = pod_trouble(event_type, pod, namespace)
        if trouble is not None:
            self._on_trouble(trouble)
        self._on_key(WorkKey(BROKER_POOL.kind, namespace, pool_name))


def _object_event(kind: ResourceKind, event: kopf.RawEvent) -> ObjectEvent:
    return ObjectEvent(kind, dict(event["object"]), event["type"] == "DELETED")


def pod_trouble(event_type: str | None, pod: Object, namespace: str) -> BrokerFailure | None:
    pool_name, broker_id = pool_name_of(pod), broker_id_of(pod)
    if pool_name is None or broker_id is None:
        return None
    reason = _trouble_reason(event_type, pod)
    if reason is None:
        return None
    return BrokerFailure(f"{namespace}/{pool_name}", broker_id, reason)


def _trouble_reason(event_type: str | None, pod: Object) -> str | None:
    if event_type == "DELETED":
        return "PodGone"
    status = pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return "PodEnded"
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        restarted = container.get("restartCount", 0) > 0
        if "terminated" in state or ("waiting" in state and restarted):
            return "ContainerTerminated"
    if "deletionTimestamp" in pod["metadata"]:
        return "PodDeleted"
    return None
