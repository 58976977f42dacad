"""Run brokers as pods: a claim, which is the broker's identity, a Service, and a pod for each.

Claims have no owner reference and are deleted only by their own copy of the policy (S4).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import assert_never

from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.kinds import CLAIM, DISRUPTION_BUDGET, POD, SERVICE, Object, ResourceKind
from tidemark_operator.api.partition_slice import split_pool
from tidemark_operator.broker_runtime.broker_runtime import (
    BrokerProcess,
    CreateBootstrapService,
    CreateBrokerService,
    CreateDisruptionBudget,
    CreateListenerService,
    CreateVolumeClaim,
    DeleteListenerService,
    LabelVolumeClaim,
    ObservedBroker,
    ObservedListener,
    ObservedPool,
    PoolAction,
    PoolCertificates,
    StartBroker,
    StopBroker,
)
from tidemark_operator.resources.broker_pod import (
    PodSettings,
    broker_pod_manifest,
    present_templates,
    security_of,
    template_of,
)
from tidemark_operator.resources.names import (
    DELETION_POLICY_LABEL,
    LISTENER_LABEL,
    bootstrap_name,
    broker_id_of,
    broker_name,
    claim_name,
    pool_labels,
)
from tidemark_operator.resources.persistent_volume_claim import (
    access_mode_of,
    claim_manifest,
    policy_of,
)
from tidemark_operator.resources.pod_disruption_budget import disruption_budget_manifest
from tidemark_operator.resources.service import (
    bootstrap_service_manifest,
    broker_service_manifest,
    listener_service_manifest,
)
from tidemark_operator.store.object_store import AlreadyExists, Conflict, ObjectStore


class PodRuntime:
    def __init__(
        self,
        store: ObjectStore,
        settings: PodSettings,
        *,
        ensure_trust: Callable[[BrokerPool], Awaitable[None]] | None = None,
        certificates_of: Callable[[str], PoolCertificates | None] = lambda _: None,
    ) -> None:
        """Create it; `ensure_trust` writes what pods of a pool with TLS mount."""
        self._certificates_of = certificates_of
        self._store = store
        self._ensure_trust = ensure_trust
        self._settings = settings

    async def observe(self, pool: BrokerPool) -> ObservedPool:
        labels = pool_labels(pool.name)
        pods, claims, services, budget = await asyncio.gather(
            self._store.list(POD, pool.namespace, labels),
            self._store.list(CLAIM, pool.namespace, labels),
            self._store.list(SERVICE, pool.namespace, labels),
            self._store.get(DISRUPTION_BUDGET, pool.namespace, pool.name),
        )
        pod_of, claim_of = _by_broker_id(pods), _by_broker_id(claims)
        service_of = _by_broker_id(
            [each for each in services if LISTENER_LABEL not in each["metadata"]["labels"]]
        )
        brokers = tuple(
            observed_broker(
                broker_id,
                pod=pod_of.get(broker_id),
                claim=claim_of.get(broker_id),
                has_endpoint=broker_id in service_of,
                templates=self._templates(pool, broker_id, claim_of.get(broker_id)),
            )
            for broker_id in sorted(pod_of.keys() | claim_of.keys() | service_of.keys())
        )
        return ObservedPool(
            brokers=brokers,
            has_bootstrap=any(
                service["metadata"]["name"] == bootstrap_name(pool.name) for service in services
            ),
            has_disruption_budget=budget is not None,
            listeners=tuple(
                observed_listener(each)
                for each in services
                if LISTENER_LABEL in each["metadata"]["labels"]
            ),
            certificates=self._certificates_of(pool.pool),
        )

    async def apply(self, pool: BrokerPool, action: PoolAction) -> None:
        match action:
            case CreateVolumeClaim(broker_id):
                await self._create(CLAIM, claim_manifest(pool, broker_id))
            case LabelVolumeClaim(broker_id):
                await self._mark_claim(pool, broker_id)
            case CreateBrokerService(broker_id):
                await self._create(SERVICE, broker_service_manifest(pool, broker_id))
            case StartBroker(broker_id):
                await self._start(pool, broker_id)
            case StopBroker(broker_id, instance):
                await self._store.delete(
                    POD, pool.namespace, broker_name(pool.name, broker_id), uid=instance
                )
            case CreateBootstrapService():
                await self._create(SERVICE, bootstrap_service_manifest(pool))
            case CreateListenerService(listener, door_to):
                await self._create(SERVICE, listener_service_manifest(pool, listener, door_to))
            case DeleteListenerService(name, uid):
                await self._store.delete(SERVICE, pool.namespace, name, uid=uid)
            case CreateDisruptionBudget():
                await self._create(DISRUPTION_BUDGET, disruption_budget_manifest(pool))
            case _:
                assert_never(action)

    async def kill(self, pool: str, broker_id: BrokerId) -> bool:
        """Delete the broker's pod, as `kubectl delete pod`; return whether there is one."""
        namespace, pool_name = split_pool(pool)
        name = broker_name(pool_name, broker_id)
        pod = await self._store.get(POD, namespace, name)
        if pod is None:
            return False
        await self._store.delete(POD, namespace, name, uid=pod["metadata"]["uid"])
        return True

    async def on_pool_gone(self, namespace: str, name: str) -> None:
        """Delete the claims that say Delete; pods and Services follow their owner."""
        for claim in await self._store.list(CLAIM, namespace, pool_labels(name)):
            metadata = claim["metadata"]
            if policy_of(claim) != "Delete" or "deletionTimestamp" in metadata:
                continue
            await self._store.delete(CLAIM, namespace, metadata["name"], uid=metadata["uid"])

    def _templates(
        self, pool: BrokerPool, broker_id: BrokerId, claim: Object | None
    ) -> frozenset[str]:
        """Return the digests of present templates; none while there is no claim for the pod."""
        if claim is None:
            return frozenset()
        claim_uid = claim["metadata"]["uid"]
        return present_templates(pool, broker_id, claim_uid=claim_uid, settings=self._settings)

    async def _start(self, pool: BrokerPool, broker_id: BrokerId) -> None:
        claim = await self._store.get(CLAIM, pool.namespace, claim_name(pool.name, broker_id))
        if claim is None or "deletionTimestamp" in claim["metadata"]:
            return  # a later pass, woken by the pool's own events, makes it first
        claim_uid = claim["metadata"]["uid"]
        if pool.spec.security.has_tls and self._ensure_trust is not None:
            await self._ensure_trust(pool)
        manifest = broker_pod_manifest(
            pool, broker_id, claim_uid=claim_uid, settings=self._settings
        )
        await self._create(POD, manifest)

    async def _mark_claim(self, pool: BrokerPool, broker_id: BrokerId) -> None:
        claim = await self._store.get(CLAIM, pool.namespace, claim_name(pool.name, broker_id))
        if claim is None:
            return
        claim["metadata"].setdefault("labels", {})[DELETION_POLICY_LABEL] = (
            pool.spec.deletion_policy
        )
        await self._store.replace(CLAIM, claim)

    async def _create(self, kind: ResourceKind, manifest: Object) -> None:
        """Create an object; one that already exists is no error, unless it is being deleted.

        Then the caller must come back later, or the name would stay empty (other operators got
        stuck by ignoring this).
        """
        try:
            await self._store.create(kind, manifest)
        except AlreadyExists:
            metadata = manifest["metadata"]
            found = await self._store.get(kind, metadata["namespace"], metadata["name"])
            if found is None or "deletionTimestamp" in found["metadata"]:
                name = f"{kind.kind} {metadata['namespace']}/{metadata['name']}"
                raise Conflict(
                    f"{name}: the earlier object of that name is being deleted"
                ) from None


def observed_broker(
    broker_id: BrokerId,
    *,
    pod: Object | None,
    claim: Object | None,
    has_endpoint: bool,
    templates: frozenset[str] = frozenset(),
) -> ObservedBroker:
    """Return the observation; `templates` are digests that are not outdated, none if unknown."""
    return ObservedBroker(
        broker_id=broker_id,
        process=_process(pod),
        instance="" if pod is None else pod["metadata"]["uid"],
        has_storage=claim is not None,
        storage_is_going=claim is not None and "deletionTimestamp" in claim["metadata"],
        storage_policy="" if claim is None else policy_of(claim),
        storage_access_mode="" if claim is None else access_mode_of(claim),
        has_endpoint=has_endpoint,
        is_outdated=pod is not None and bool(templates) and template_of(pod) not in templates,
        node_address="" if pod is None else pod.get("status", {}).get("hostIP", ""),
        security=None if pod is None else security_of(pod),
    )


def observed_listener(service: Object) -> ObservedListener:
    metadata, spec = service["metadata"], service["spec"]
    listener = metadata["labels"][LISTENER_LABEL]
    # Others may have added ports of their own.
    port: Object = next((each for each in spec["ports"] if each.get("targetPort") == listener), {})
    ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
    return ObservedListener(
        name=metadata["name"],
        uid=metadata["uid"],
        listener=listener,
        broker_id=broker_id_of(service),
        type=spec["type"],
        port=port.get("port", 0),  # none of ours: it does not fit, and is made anew
        node_port=port.get("nodePort", 0),
        balancer_host=ingress[0].get("hostname") or ingress[0].get("ip", ""),
    )


def _process(pod: Object | None) -> BrokerProcess:
    if pod is None:
        return BrokerProcess.ABSENT
    if "deletionTimestamp" in pod["metadata"]:
        return BrokerProcess.STOPPING
    status = pod.get("status", {})
    if status.get("phase") in ("Succeeded", "Failed"):
        return BrokerProcess.EXITED
    conditions = status.get("conditions") or ()
    is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return BrokerProcess.RUNNING if is_ready else BrokerProcess.STARTING


def _by_broker_id(items: list[Object]) -> dict[BrokerId, Object]:
    found = {}
    for item in items:
        broker_id = broker_id_of(item)
        if broker_id is not None:
            found[broker_id] = item
    return found
