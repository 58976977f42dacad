"""Who pods are: tokens as their kubelets renew them, and the API server's reviews of them.

A run without identities knows a sender by its address alone. In one with them each message has a
token, and the production `TokenReviews` and `BrokerPods` of each operator say whose it is. A token
is valid while its pod exists and before its expiry. The watch tells operators of a deleted pod
later.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
from tidemark_operator.api.kinds import Object
from tidemark_operator.resources.names import broker_labels, broker_name
from tidemark_operator.security.broker_identity import BrokerIdentity, BrokerPods
from tidemark_operator.security.rejections import Reason, SenderRejected
from tidemark_operator.security.token_review import POD_NAME, POD_UID, TokenReviews
from tidemark_operator.store.object_store import StoreError
from tidemark_protocol.access_messages import CONTROLLER_AUDIENCE
from tidemark_protocol.ids import BrokerId

from tests.simulation.engine.clock import EPOCH_US
from tests.simulation.engine.messages import Sender
from tests.simulation.engine.timeline import Timeline

TOKEN_SECONDS = 8.0
RENEWED_AFTER = 0.8  # of a token's life, as the kubelet does it
ACCOUNT = "brokers"


@dataclass(frozen=True, slots=True)
class SimulatedPod:
    broker_id: BrokerId
    uid: str
    host: str
    created_us: int


class PodIdentities:
    """The API server's and the kubelets' part; without a random number of the world's."""

    def __init__(self, pool: str, timeline: Timeline, seed: int) -> None:
        self.is_away = False  # reviews have no response
        self.rejected_as: dict[Reason, int] = {}
        self._namespace, _, self._pool_name = pool.partition("/")
        self._timeline = timeline
        self._chance = Random(f"identities of {seed}")
        self._pods: dict[BrokerId, SimulatedPod] = {}
        self._expiries_us: dict[str, int] = {}  # of each token that was issued
        self.on_gone: list[Callable[[str, Object], None]] = []  # watches: the pod's UID, the pod

    @property
    def now_us(self) -> int:
        """By the API server's clock."""
        return EPOCH_US + self._timeline.now_us

    # ---- pods

    def pod_created(self, broker_id: BrokerId, uid: str, host: str) -> None:
        """Replace the broker's pod."""
        former = self._pods.get(broker_id)
        self._pods[broker_id] = SimulatedPod(broker_id, uid, host, self._timeline.now_us)
        if former is not None:
            item = self._object(former)
            for notify in self.on_gone:
                delay_us = self._chance.randint(50_000, 1_500_000)
                self._timeline.after(delay_us, notify, former.uid, item)

    def pod(self, namespace: str, name: str) -> Object | None:
        for pod in self._pods.values():
            if (namespace, name) == (self._namespace, broker_name(self._pool_name, pod.broker_id)):
                return self._object(pod)
        return None

    def _object(self, pod: SimulatedPod) -> Object:
        owner = {"kind": "BrokerPool", "name": self._pool_name, "controller": True}
        return {
            "metadata": {
                "namespace": self._namespace,
                "name": broker_name(self._pool_name, pod.broker_id),
                "uid": pod.uid,
                "labels": broker_labels(self._pool_name, pod.broker_id),
                "ownerReferences": [owner],
            },
            "status": {"phase": "Running", "podIP": pod.host},
        }

    # ---- tokens

    def token_of(self, broker_id: BrokerId, uid: str) -> str:
        """Return what the kubelet of a pod has in its file now; an old one once the pod is gone."""
        pod = self._pods[broker_id]
        if pod.uid != uid:
            return self.issued(broker_id, uid, expires_us=EPOCH_US + pod.created_us)
        life_us = int(TOKEN_SECONDS * 1e6)
        period_us = int(life_us * RENEWED_AFTER)
        renewals = (self._timeline.now_us - pod.created_us) // period_us
        issued_us = EPOCH_US + pod.created_us + renewals * period_us
        return self.issued(broker_id, uid, expires_us=issued_us + life_us)

    def issued(self, broker_id: BrokerId, uid: str, *, expires_us: int) -> str:
        name = broker_name(self._pool_name, broker_id)
        claims = {"aud": [CONTROLLER_AUDIENCE], "exp": expires_us / 1e6, "pod": [name, uid]}
        payload = base64.urlsafe_b64encode(msgspec.json.encode(claims)).rstrip(b"=").decode()
        token = f"e30.{payload}.signed"
        self._expiries_us[token] = expires_us
        return token

    def expiry_us(self, token: str) -> int:
        return self._expiries_us[token]

    def review(self, token: str) -> Object:
        """Return the status of a TokenReview."""
        expires_us = self._expiries_us.get(token)
        if expires_us is None or expires_us <= self.now_us:
            return {"authenticated": False}
        payload = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        name, uid = claims["pod"]
        found = self.pod(self._namespace, name)
        if found is None or found["metadata"]["uid"] != uid:
            return {"authenticated": False}
        return {
            "authenticated": True,
            "audiences": claims["aud"],
            "user": {
                "username": f"system:serviceaccount:{self._namespace}:{ACCOUNT}",
                "groups": ["system:serviceaccounts"],
                "extra": {POD_NAME: [name], POD_UID: [uid]},
            },
        }


class SenderIdentities:
    """Of one operator process: who sends a message, by the product's own reviews."""

    def __init__(
        self,
        identities: PodIdentities,
        delay: Callable[[], Any],
        *,
        monotonic_s: Callable[[], float],
        wall_s: Callable[[], float],
    ) -> None:
        self._identities = identities
        self._delay = delay
        self.with_token: set[str] = set()  # UIDs of pods that it knows by a token
        self._pods = BrokerPods(self._read_pod)
        self._tokens = TokenReviews(self._review, monotonic_s=monotonic_s, wall_s=wall_s)

    async def of(self, sender: Sender) -> BrokerIdentity:
        """As `ByKubernetes`, with brokers of the former release accepted. Raises SenderRejected."""
        try:
            if not sender.token:
                old = self._pods.at_address(sender.host)
                if old is None:
                    raise SenderRejected(Reason.NO_TOKEN, "send the token of the broker's pod")
                return old
            reviewed = await self._tokens.review(
                sender.token, CONTROLLER_AUDIENCE, source=sender.host
            )
            found = await self._pods.identity_of(reviewed)
            self.with_token.add(reviewed.pod_uid)
            return found
        except SenderRejected as rejected:
            counts = self._identities.rejected_as
            counts[rejected.reason] = counts.get(rejected.reason, 0) + 1
            raise

    def on_pod_gone(self, uid: str, pod: Object) -> None:
        self.with_token.discard(uid)
        self._pods.on_pod_gone(pod)
        self._tokens.forget_pod(uid)

    async def _review(self, spec: Object) -> Object:
        await self._call()
        return self._identities.review(spec["token"])

    async def _read_pod(self, namespace: str, name: str) -> Object | None:
        await self._call()
        return self._identities.pod(namespace, name)

    async def _call(self) -> None:
        await self._delay()
        if self._identities.is_away:
            raise StoreError("no response to a review")
