"""Find out which broker a pod is, by the pods that the operator made.

The watch of pods keeps the index; a pod that it has not shown yet is read. Brokers of the former
release send no token: while that is allowed, a pod is known by its address until it has sent one
(docs/operations/security.md).
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.kinds import Object
from tidemark_operator.resources.names import (
    broker_id_of,
    broker_name,
    pool_name_of,
)
from tidemark_operator.security.rejections import Reason, SenderRejected
from tidemark_operator.security.token_review import RETRY, ReviewedToken
from tidemark_operator.store.object_store import StoreError

ReadPod = Callable[[str, str], Awaitable[Object | None]]  # by namespace and name


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The one broker that a sender may speak as."""

    pool: str  # namespace/name
    broker_id: BrokerId

    def check(self, pool: str, broker_id: BrokerId) -> None:
        """Check that a message names this broker. Raises SenderRejected."""
        # guard: broker-speaks-for-itself (S33)
        if (pool, broker_id) != (self.pool, self.broker_id):
            raise SenderRejected(
                Reason.OTHER_BROKER,
                f"broker {self.broker_id} of {self.pool} sent a message as broker {broker_id} of"
                f" {pool[:320]}: a broker speaks for itself only",
                sender=str(self),
            )

    def __str__(self) -> str:
        return f"{self.pool}-{self.broker_id}"


@dataclass(frozen=True, slots=True)
class BrokerPod:
    identity: BrokerIdentity
    uid: str
    addresses: tuple[str, ...]


class BrokerPods:
    """The brokers' pods that exist, by UID."""

    def __init__(self, read_pod: ReadPod) -> None:
        """Create it; `read_pod` raises StoreError."""
        self._read_pod = read_pod
        self._pods: dict[str, BrokerPod] = {}
        self._with_token: set[str] = set()  # UIDs of pods that sent one

    def on_pod(self, pod: Object) -> None:
        found = broker_pod(pod)
        if found is not None:
            self._keep(found)

    def on_pod_gone(self, pod: Object) -> None:
        self._forget(pod["metadata"].get("uid", ""))

    async def identity_of(self, token: ReviewedToken) -> BrokerIdentity:
        """Return the broker of the pod that a token is bound to. Raises SenderRejected."""
        name = token.principal.name
        if not token.pod_uid or not token.namespace:
            raise SenderRejected(
                Reason.NOT_A_BROKER,
                f"{name} is not bound to a pod: brokers send the token of their pod",
                sender=name,
            )
        pod = self._pods.get(token.pod_uid) or await self._read(token)
        if pod is None or not pod.identity.pool.startswith(f"{token.namespace}/"):
            raise SenderRejected(
                Reason.NOT_A_BROKER,
                f"pod {token.namespace}/{token.pod_name} is no broker that this operator made",
                sender=f"{name} in pod {token.pod_name}",
            )
        self._with_token.add(pod.uid)
        return pod.identity

    def at_address(self, address: str) -> BrokerIdentity | None:
        """Return the broker with that pod address, if its pod has sent no token yet."""
        at_it = [pod for pod in self._pods.values() if address in pod.addresses]
        # guard: address-counts-before-token (S33)
        if len(at_it) != 1 or at_it[0].uid in self._with_token:
            return None
        return at_it[0].identity

    async def _read(self, token: ReviewedToken) -> BrokerPod | None:
        try:
            pod = await self._read_pod(token.namespace, token.pod_name)
        except StoreError as error:
            raise SenderRejected(
                Reason.NOT_REVIEWED,
                f"pod {token.namespace}/{token.pod_name} could not be read: {RETRY}",
                sender=token.principal.name,
            ) from error
        found = None if pod is None else broker_pod(pod)
        # guard: token-is-of-present-pod (S33)
        if found is None or found.uid != token.pod_uid:
            return None
        self._keep(found)
        return found

    def _keep(self, pod: BrokerPod) -> None:
        """Keep a pod; an earlier one of its name is gone, also if that was not shown."""
        for uid in [uid for uid, each in self._pods.items() if each.identity == pod.identity]:
            if uid != pod.uid:
                self._forget(uid)
        self._pods[pod.uid] = pod

    def _forget(self, pod_uid: str) -> None:
        self._pods.pop(pod_uid, None)
        self._with_token.discard(pod_uid)


def broker_pod(pod: Object) -> BrokerPod | None:
    """Return what a pod says of its broker; None unless it is as the operator makes them."""
    metadata = pod["metadata"]
    pool_name, broker_id = pool_name_of(pod), broker_id_of(pod)
    if pool_name is None or broker_id is None:
        return None
    is_owned = any(
        owner.get("kind") == "BrokerPool"
        and owner.get("name") == pool_name
        and owner.get("controller") is True
        for owner in metadata.get("ownerReferences") or ()
    )
    if not is_owned or metadata["name"] != broker_name(pool_name, broker_id):
        return None
    return BrokerPod(
        BrokerIdentity(f"{metadata['namespace']}/{pool_name}", broker_id),
        metadata["uid"],
        tuple(_addresses(pod.get("status") or {})),
    )


def _addresses(status: Object) -> Iterable[str]:
    if status.get("phase") in ("Succeeded", "Failed"):
        return ()  # another pod may have its address by now
    ips = [status.get("podIP"), *(each.get("ip") for each in status.get("podIPs") or ())]
    return dict.fromkeys(str(ip) for ip in ips if ip)
