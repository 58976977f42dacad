"""Build who may use the operator's ports on Kubernetes, from one API server's reviews."""

import time
from dataclasses import dataclass
from pathlib import Path

from aiohttp.typedefs import Middleware
from tidemark_protocol.token_file import TokenFile

from tidemark_operator.api.kinds import POD, SUBJECT_ACCESS_REVIEW, TOKEN_REVIEW
from tidemark_operator.manager.watch import ObjectEvent
from tidemark_operator.security.authentication import ByKubernetes, OnLoopback, authenticated
from tidemark_operator.security.broker_identity import BrokerPods
from tidemark_operator.security.pool_permissions import PoolPermissions
from tidemark_operator.security.rejections import RejectionLog
from tidemark_operator.security.token_review import TokenReviews
from tidemark_operator.store.kubernetes import KubernetesStore


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    peer: str = ""  # the user name of the operators' ServiceAccount
    token_file: Path | None = None  # of this operator, for its peer
    accepts_old_brokers: bool = False
    metrics_need_token: bool = False


class ClusterSecurity:
    """Of one operator process."""

    def __init__(self, store: KubernetesStore, settings: SecuritySettings) -> None:
        self._pods = BrokerPods(lambda namespace, name: store.get(POD, namespace, name))
        self.tokens = TokenReviews(
            lambda spec: store.review(TOKEN_REVIEW, spec),
            monotonic_s=time.monotonic,
            wall_s=time.time,
        )
        self.own_token = TokenFile(settings.token_file)
        permissions = PoolPermissions(
            lambda spec: store.review(SUBJECT_ACCESS_REVIEW, spec), monotonic_s=time.monotonic
        )
        rejections = RejectionLog(time.monotonic)
        self.rejections = rejections.connections
        self.on_network: Middleware = authenticated(
            ByKubernetes(
                self.tokens,
                permissions,
                self._pods,
                peer=settings.peer,
                accepts_old_brokers=settings.accepts_old_brokers,
                metrics_need_token=settings.metrics_need_token,
            ),
            rejections,
        )
        self.on_loopback: Middleware = authenticated(OnLoopback(), rejections)

    def on_pod(self, event: ObjectEvent) -> None:
        """Follow the brokers' pods; one that is gone speaks for no broker any more."""
        if event.is_deleted:
            self._pods.on_pod_gone(event.item)
            self.tokens.forget_pod(event.item["metadata"].get("uid", ""))
        else:
            self._pods.on_pod(event.item)

    async def close(self) -> None:
        await self.tokens.close()
