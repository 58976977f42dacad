"""An API server of a few lines: it reviews tokens that are made here, and what users may do."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tidemark_operator.api.kinds import Object
from tidemark_operator.resources.broker_pod import PodSettings, broker_pod_manifest
from tidemark_operator.security.token_review import TokenReviews
from tidemark_operator.store.object_store import StoreError
from tidemark_protocol.access_messages import CONTROLLER_AUDIENCE
from tidemark_protocol.ids import BrokerId

from tests.support.api_objects import broker_pool

NOW_S = 1_700_000_000.0
HOUR_S = 3600.0
POOL = broker_pool(uid="pool-uid", replicas=3)


@dataclass
class Clock:
    now_s: float = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return NOW_S - 1000.0 + self.now_s


def jwt(**claims: Any) -> str:
    """A token of no signature: the API server's word counts."""
    parts = ({"alg": "RS256"}, claims, {"signature": True})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts)
    return ".".join(part.rstrip("=") for part in encoded)


def token(
    jti: str = "1", *, audience: str = CONTROLLER_AUDIENCE, expires_in_s: float = HOUR_S
) -> str:
    return jwt(jti=jti, aud=[audience], exp=int(NOW_S + expires_in_s))


def pod(number: int = 1, uid: str = "uid-1", address: str = "10.0.0.1", **status: object) -> Object:
    made = broker_pod_manifest(
        POOL, BrokerId(number), claim_uid="claim", settings=PodSettings("operator:8070")
    )
    made["metadata"]["uid"] = uid
    made["status"] = {"podIP": address, "podIPs": [{"ip": address}], "phase": "Running", **status}
    return made


class StoredPods:
    def __init__(self, *pods: Object) -> None:
        self.pods = {
            (each["metadata"]["namespace"], each["metadata"]["name"]): each for each in pods
        }
        self.reads = 0
        self.is_away = False

    async def read(self, namespace: str, name: str) -> Object | None:
        self.reads += 1
        if self.is_away:
            raise StoreError("away")
        return self.pods.get((namespace, name))


@dataclass
class ApiServer:
    clock: Clock = field(default_factory=Clock)
    users: dict[str, Object] = field(default_factory=dict)  # of tokens
    permissions: set[tuple[str, ...]] = field(default_factory=set)
    reviewed: list[str] = field(default_factory=list)
    is_away: bool = False
    responds: asyncio.Event = field(default_factory=asyncio.Event)
    most_at_once: int = 0
    _at_once: int = 0

    def __post_init__(self) -> None:
        self.responds.set()

    def account(
        self, name: str, of: str, *, pod: tuple[str, str] | None = None, namespace: str = "shop"
    ) -> None:
        """Know a token as a ServiceAccount's; `pod` is the name and UID that it is bound to."""
        extra = {}
        if pod is not None:
            extra = {
                "authentication.kubernetes.io/pod-name": [pod[0]],
                "authentication.kubernetes.io/pod-uid": [pod[1]],
            }
        self.users[of] = {
            "username": f"system:serviceaccount:{namespace}:{name}",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "extra": extra,
        }

    async def review_token(self, spec: Object) -> Object:
        self.reviewed.append(spec["token"])
        await self._respond()
        user = self.users.get(spec["token"])
        if user is None:
            return {"authenticated": False, "error": "invalid bearer token"}
        return {"authenticated": True, "user": user, "audiences": spec["audiences"]}

    async def review_access(self, spec: Object) -> Object:
        await self._respond()
        attributes = spec["resourceAttributes"]
        names = ("namespace", "name", "verb", "resource")
        asked = (spec["user"], *(attributes.get(name, "") for name in names))
        self.reviewed.append("/".join(asked))
        return {"allowed": asked in self.permissions}

    def token_reviews(self, **bounds: int) -> TokenReviews:
        return TokenReviews(
            self.review_token,
            monotonic_s=self.clock.monotonic_s,
            wall_s=self.clock.wall_s,
            **bounds,
        )

    async def _respond(self) -> None:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await self.responds.wait()
        finally:
            self._at_once -= 1
        if self.is_away:
            raise StoreError("POST tokenreviews: no connection")


def run(scenario: Callable[[ApiServer], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(scenario(ApiServer()), 20)

    asyncio.run(limited())
