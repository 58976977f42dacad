"""Have the API server review tokens, and cache the results by the tokens' digests (0170).

A valid token is asked about again after five minutes, and never used after its expiry. Reviews of
one token that are under way are one call. Calls are bounded: in all, and for each source, so that
no sender of invalid tokens delays the others for long. What is no token for us by its own words
costs no call. Without a response of the API server a token that was valid stays so until it
expires; one that is not known is rejected.
"""

import asyncio
import base64
import hashlib
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec
from tidemark_protocol.access_messages import MAX_TOKEN_BYTES, Principal

from tidemark_operator.api.kinds import Object
from tidemark_operator.security.rejections import Reason, SenderRejected
from tidemark_operator.store.object_store import StoreError

log = logging.getLogger(__name__)

MAX_ENTRIES = 10_000  # of valid tokens, and of rejected ones
FRESH_SECONDS = 300.0
REFRESH_SECONDS = 240.0  # from then on a token in use is reviewed in the background
REJECTED_SECONDS = 10.0
BEFORE_EXPIRY_SECONDS = 10.0
REVIEW_SECONDS = 3.0
AGAIN_SECONDS = 5.0  # after a call without a response
KNOWN_WAITS_SECONDS = 0.5  # for the API server, before what is known is used
MAX_CONCURRENT = 16
MAX_PENDING = 256
MAX_PER_SOURCE = 8
POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
RETRY = "try again in a few seconds"

Value = TypeVar("Value")
SendReview = Callable[[Object], Awaitable[Object]]  # the spec of a TokenReview to its status


@dataclass(frozen=True, slots=True)
class ReviewedToken:
    """The identity of a valid token; pod name and UID are "" for a token of no pod."""

    principal: Principal
    expires_at_s: float  # wall clock
    pod_name: str = ""
    pod_uid: str = ""

    @property
    def namespace(self) -> str:
        """Return the namespace of a ServiceAccount, "" for another user."""
        words = self.principal.name.split(":")
        is_account = len(words) == 4 and words[:2] == ["system", "serviceaccount"]
        return words[2] if is_account else ""


@dataclass(frozen=True, slots=True)
class _Entry:
    token: ReviewedToken
    reviewed_at_s: float
    refresh_at_s: float


class TokenReviews:
    def __init__(
        self,
        send: SendReview,
        *,
        monotonic_s: Callable[[], float],
        wall_s: Callable[[], float],
        max_entries: int = MAX_ENTRIES,
        max_concurrent: int = MAX_CONCURRENT,
    ) -> None:
        """Create it; `send` raises StoreError without a response of the API server."""
        self._send = send
        self._monotonic_s = monotonic_s
        self._wall_s = wall_s
        self._max_entries = max_entries
        self._turns = asyncio.Semaphore(max_concurrent)
        self._valid: OrderedDict[bytes, _Entry] = OrderedDict()
        self._rejected: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._under_way: dict[bytes, asyncio.Task[ReviewedToken]] = {}
        self._sources: Counter[str] = Counter()

    async def review(self, token: str, audience: str, *, source: str) -> ReviewedToken:
        """Return the identity of a token for that audience; `source` is who presents it.

        Raises SenderRejected.
        """
        key = digest(token, audience)
        entry, now_s = self._known(key), self._monotonic_s()
        if entry is not None and now_s < entry.refresh_at_s:
            return entry.token
        if entry is None:
            self._check_not_rejected(key, now_s)
            check_claims(token, audience)
        reviewing = self._under_way.get(key) or self._begin(key, token, audience, source)
        if entry is None:
            return await asyncio.shield(reviewing)
        if now_s < entry.reviewed_at_s + FRESH_SECONDS and not reviewing.done():
            return entry.token
        return await self._again(reviewing, entry)

    def forget_pod(self, pod_uid: str) -> None:
        """Drop the identities of a pod that is gone."""
        gone = [key for key, entry in self._valid.items() if entry.token.pod_uid == pod_uid]
        for key in gone:
            del self._valid[key]

    async def close(self) -> None:
        under_way = list(self._under_way.values())
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _again(self, reviewing: asyncio.Task[ReviewedToken], entry: _Entry) -> ReviewedToken:
        """Return a review's result, or what is known if the API server does not respond."""
        try:
            async with asyncio.timeout(KNOWN_WAITS_SECONDS):
                return await asyncio.shield(reviewing)
        except TimeoutError:
            return entry.token
        except SenderRejected as rejected:
            if rejected.reason is Reason.NOT_REVIEWED:
                return entry.token
            raise

    def _known(self, key: bytes) -> _Entry | None:
        entry = self._valid.get(key)
        if entry is None:
            return None
        # guard: known-token-ends-with-its-expiry (S33)
        if self._wall_s() >= entry.token.expires_at_s:
            del self._valid[key]
            return None
        self._valid.move_to_end(key)
        return entry

    def _check_not_rejected(self, key: bytes, now_s: float) -> None:
        found = self._rejected.get(key)
        if found is None:
            return
        until_s, text = found
        if now_s < until_s:
            raise SenderRejected(Reason.INVALID_TOKEN, text)
        del self._rejected[key]

    def _begin(
        self, key: bytes, token: str, audience: str, source: str
    ) -> asyncio.Task[ReviewedToken]:
        if len(self._under_way) >= MAX_PENDING or self._sources[source] >= MAX_PER_SOURCE:
            raise SenderRejected(
                Reason.NOT_REVIEWED, f"too many tokens are being reviewed: {RETRY}"
            )
        self._sources[source] += 1
        task = asyncio.create_task(self._review(key, token, audience), name="token review")
        self._under_way[key] = task

        def ended(done: asyncio.Task[ReviewedToken]) -> None:
            del self._under_way[key]
            self._sources[source] -= 1
            if not self._sources[source]:
                del self._sources[source]
            if not done.cancelled():
                done.exception()  # the request that asked may be gone

        task.add_done_callback(ended)
        return task

    async def _review(self, key: bytes, token: str, audience: str) -> ReviewedToken:
        try:
            async with asyncio.timeout(REVIEW_SECONDS), self._turns:
                status = await self._send({"token": token, "audiences": [audience]})
        except (StoreError, TimeoutError) as error:
            self._postpone(key)
            why = str(error) or f"no response within {REVIEW_SECONDS:g} s"
            log.error("token not reviewed by the API server", extra={"error": why[:500]})
            raise SenderRejected(
                Reason.NOT_REVIEWED, f"the API server did not review the token: {RETRY}"
            ) from error
        now_s = self._monotonic_s()
        try:
            reviewed = read_status(status, token, audience)
        except SenderRejected as rejected:
            self._valid.pop(key, None)
            _keep(self._rejected, key, (now_s + REJECTED_SECONDS, str(rejected)), self._max_entries)
            raise
        lasts_s = reviewed.expires_at_s - BEFORE_EXPIRY_SECONDS - self._wall_s()
        refresh_at_s = now_s + min(REFRESH_SECONDS, lasts_s)
        _keep(self._valid, key, _Entry(reviewed, now_s, refresh_at_s), self._max_entries)
        return reviewed

    def _postpone(self, key: bytes) -> None:
        """Use what is known for some seconds, without another call."""
        entry = self._valid.get(key)
        if entry is not None:
            later_s = self._monotonic_s() + AGAIN_SECONDS
            self._valid[key] = replace(entry, refresh_at_s=later_s)


def digest(token: str, audience: str) -> bytes:
    return hashlib.sha256(f"{audience}\0{token}".encode()).digest()


def check_claims(token: str, audience: str) -> None:
    """Check that a token is a JWT for that audience, by its own unverified words.

    The API server verifies it; this only spares it what is of no use. Raises SenderRejected.
    """
    claims = unverified_claims(token)
    if claims is None:
        raise SenderRejected(
            Reason.INVALID_TOKEN,
            f"the token is no JSON Web Token: send a ServiceAccount's token for {audience}",
        )
    found = claims.get("aud")
    audiences = [found] if isinstance(found, str) else found
    if not isinstance(audiences, list) or audience not in audiences:
        raise SenderRejected(
            Reason.INVALID_TOKEN,
            f"the token is for another audience: get one with `kubectl create token NAME"
            f" --audience {audience}`",
        )


def unverified_claims(token: str) -> dict[str, Any] | None:
    """Return the claims of a JWT, or None for anything else."""
    parts = token.split(".")
    if len(token) > MAX_TOKEN_BYTES or len(parts) != 3 or not token.isascii():
        return None
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = msgspec.json.decode(payload)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None


def read_status(status: Object, token: str, audience: str) -> ReviewedToken:
    """Return the identity that the status of a TokenReview names. Raises SenderRejected."""
    user = status.get("user") or {}
    if status.get("authenticated") is not True or not user.get("username"):
        raise SenderRejected(
            Reason.INVALID_TOKEN,
            "the token is not valid: it has expired, its pod or ServiceAccount is gone, or it is"
            " of another cluster",
        )
    if audience not in (status.get("audiences") or ()):
        raise SenderRejected(
            Reason.INVALID_TOKEN, f"the API server did not confirm the audience {audience}"
        )
    expiry = (unverified_claims(token) or {}).get("exp")
    if not isinstance(expiry, int | float):
        raise SenderRejected(
            Reason.INVALID_TOKEN, "the token has no expiry: use one that expires (TokenRequest)"
        )
    extra = user.get("extra") or {}
    return ReviewedToken(
        Principal(str(user["username"]), tuple(map(str, user.get("groups") or ()))),
        float(expiry),
        pod_name=_only(extra.get(POD_NAME)),
        pod_uid=_only(extra.get(POD_UID)),
    )


def _only(values: object) -> str:
    return str(values[0]) if isinstance(values, list) and len(values) == 1 else ""


def _keep(cache: OrderedDict[bytes, Value], key: bytes, value: Value, max_entries: int) -> None:
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > max_entries:
        cache.popitem(last=False)
