"""The API server: objects behind compare-and-set, and each operator's way to it.

A write may meet a conflict that nobody caused, lose its request, or lose its answer after it landed
(both OutcomeUnknown, S3); an outage refuses reads with StoreError and leaves writes unknown. One
operator alone may be out of its reach, in either direction. Reads and lists are quorum reads, as
the seam promises.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

import msgspec
from tidemark_operator.api.kinds import BROKER_POOL, TOPIC, Object, ResourceKind
from tidemark_operator.store.object_store import (
    AlreadyExists,
    Conflict,
    NotFound,
    OutcomeUnknown,
    StoreError,
)

from tests.simulation.engine.costs import Costs, charge
from tests.simulation.engine.timeline import Timeline

P = ParamSpec("P")
T = TypeVar("T")
Key = tuple[str, str, str]  # kind, namespace, name
REQUESTS, RESPONSES = "requests", "answers"
KINDS_WITH_STATUS = frozenset({TOPIC.kind, BROKER_POOL.kind})


@dataclass(slots=True)
class StoreFaults:
    """Chances per call, 0 to 1, and delays."""

    conflict: float = 0.0
    request_lost: float = 0.0
    response_lost: float = 0.0
    least_delay_us: int = 500  # one way
    most_delay_us: int = 3_000
    timeout_ms: int = 1_000


class SimulatedStore:
    """What is stored, and in which order it was written."""

    def __init__(self, timeline: Timeline, chance: Random) -> None:
        self.faults = StoreFaults()
        self.costs: Costs | None = None
        self.is_down = False
        self.out_of_reach: dict[str, str] = {}  # operators, and what is lost on their way
        self.version = 0
        self.writes = 0
        self.writes_requested: Counter[str] = Counter()  # by kind, whatever came of them
        self._timeline = timeline
        self._chance = chance
        self._stored: dict[Key, bytes] = {}

    def client(self, operator: str) -> "StoreClient":
        return StoreClient(self, operator, self._chance)

    def objects(self, kind: ResourceKind) -> list[Object]:
        """As they are now, in name order; for judges, who need not ask through the network."""
        return [
            msgspec.json.decode(v) for k, v in sorted(self._stored.items()) if k[0] == kind.kind
        ]

    # ---- what the server does, at one moment

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        stored = self._stored.get((kind.kind, namespace, name))
        return None if stored is None else msgspec.json.decode(stored)

    def list(
        self, kind: ResourceKind, namespace: str | None, labels: Mapping[str, str] | None
    ) -> list[Object]:
        return [
            item
            for item in self.objects(kind)
            if namespace in (None, item["metadata"].get("namespace", ""))
            and _has_labels(item, labels or {})
        ]

    def create(self, kind: ResourceKind, item: Object) -> Object:
        key = _key(kind, item)
        if key in self._stored:
            raise AlreadyExists(f"{kind.kind} {key[1]}/{key[2]} exists")
        metadata = {
            **item["metadata"],
            "uid": str(UUID(int=self._chance.getrandbits(128), version=4)),
            "generation": 1,
        }
        created = {**item, "metadata": metadata}
        if kind.kind in KINDS_WITH_STATUS:
            created.pop("status", None)
        return self._write(key, created)

    def replace(self, kind: ResourceKind, item: Object, *, status_only: bool) -> Object:
        key = _key(kind, item)
        stored = self.get(kind, key[1], key[2])
        if stored is None:
            raise NotFound(f"{kind.kind} {key[1]}/{key[2]} does not exist")
        self._compare(item, stored)
        kept = {name: stored["metadata"][name] for name in ("uid", "generation")}
        wanted = {**item, "metadata": {**item["metadata"], **kept}}
        if status_only:
            wanted = {**stored, "status": item.get("status", {})}
        elif kind.kind in KINDS_WITH_STATUS:
            wanted.pop("status", None)
            wanted.update({"status": stored["status"]} if "status" in stored else {})
        if not status_only and _content(wanted) != _content(stored):
            wanted["metadata"]["generation"] += 1
        return stored if wanted == stored else self._write(key, wanted)

    # guard: store-compares-versions (S3)
    def _compare(self, item: Object, stored: Object) -> None:
        expected = item["metadata"].get("resourceVersion")
        found = stored["metadata"]["resourceVersion"]
        if expected != found:
            name = stored["metadata"]["name"]
            raise Conflict(f"{name}: expected version {expected}, found {found}")

    def delete(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        stored = self.get(kind, namespace, name)
        if stored is None:
            return
        if uid is not None and stored["metadata"]["uid"] != uid:
            raise Conflict(f"{kind.kind} {name}: another object has this name")
        if resource_version not in (None, stored["metadata"]["resourceVersion"]):
            raise Conflict(f"{kind.kind} {name}: somebody has written it")
        self.version += 1
        self.writes += 1
        del self._stored[kind.kind, namespace, name]

    def _write(self, key: Key, item: Object) -> Object:
        self.version += 1
        self.writes += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        encoded = msgspec.json.encode(item)
        self._stored[key] = encoded
        written: Object = msgspec.json.decode(encoded)
        return written


class StoreClient:
    """`ObjectStore` of one operator process."""

    def __init__(self, store: SimulatedStore, operator: str, chance: Random) -> None:
        self._store = store
        self._operator = operator
        self._chance = chance

    @property
    def _loses(self) -> str:
        return self._store.out_of_reach.get(self._operator, "")

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        return await self._read(self._store.get, kind, namespace, name)

    async def list(
        self, kind: ResourceKind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        return await self._read(self._store.list, kind, namespace, labels)

    async def create(self, kind: ResourceKind, item: Object) -> Object:
        copied = _copy(item)
        self._store.writes_requested[kind.kind] += 1
        return await self._write(lambda: self._store.create(kind, copied))

    async def replace(self, kind: ResourceKind, item: Object) -> Object:
        copied = _copy(item)
        self._store.writes_requested[kind.kind] += 1
        return await self._write(lambda: self._store.replace(kind, copied, status_only=False))

    async def replace_status(self, kind: ResourceKind, item: Object) -> Object:
        copied = _copy(item)
        self._store.writes_requested[kind.kind] += 1
        return await self._write(lambda: self._store.replace(kind, copied, status_only=True))

    async def delete(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        await self._write(lambda: self._store.delete(kind, namespace, name, uid, resource_version))

    async def _read(self, read: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        await self._delay()
        if self._store.is_down:
            raise StoreError("no connection to the API server")
        if self._loses:
            await asyncio.sleep(self._store.faults.timeout_ms / 1000)
            raise StoreError("no answer of the API server")
        found = read(*arguments, **named)
        await self._delay()
        self._charge(found)
        return found

    async def _write(self, write: Callable[[], T]) -> T:
        """A request once sent is handled whether or not its caller still waits."""
        store, faults, chance = self._store, self._store.faults, self._chance
        handled: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        is_request_lost = faults.request_lost and chance.random() < faults.request_lost
        is_response_lost = faults.response_lost and chance.random() < faults.response_lost
        has_conflict = faults.conflict and chance.random() < faults.conflict

        def handle() -> None:
            if store.is_down or is_request_lost or self._loses == REQUESTS:
                return
            try:
                if has_conflict:
                    raise Conflict("somebody else was faster")
                result, error = write(), None
            except StoreError as found:
                result, error = None, found
            if not is_response_lost and self._loses != RESPONSES:
                byte_us = 0.0 if store.costs is None else store.costs.object_byte_us
                store._timeline.after(
                    self._delay_us(), self._answer, handled, result, error, byte_us
                )

        store._timeline.after(self._delay_us(), handle)
        try:
            async with asyncio.timeout(faults.timeout_ms / 1000):
                return await handled
        except TimeoutError:
            raise OutcomeUnknown("no answer of the API server") from None

    def _charge(self, value: Any) -> None:
        if self._store.costs is not None and value is not None:
            charge(self._store.costs.object_byte_us * len(msgspec.json.encode(value)))

    @staticmethod
    def _answer(
        handled: "asyncio.Future[Any]", result: Any, error: StoreError | None, byte_us: float
    ) -> None:
        loop = handled.get_loop()

        def evaluate() -> None:
            if handled.done():
                return
            if result is not None:
                charge(byte_us * len(msgspec.json.encode(result)))
            if error is None:
                handled.set_result(result)
            else:
                handled.set_exception(error)

        loop.call_soon(evaluate)

    def _delay_us(self) -> int:
        faults = self._store.faults
        return self._chance.randint(faults.least_delay_us, faults.most_delay_us)

    async def delayed(self) -> None:
        """Wait for a response that takes nothing from what is stored. Raises StoreError."""
        await self._read(lambda: None)

    async def _delay(self) -> None:
        await asyncio.sleep(self._delay_us() / 1e6)


def _key(kind: ResourceKind, item: Object) -> Key:
    metadata = item["metadata"]
    return (kind.kind, metadata.get("namespace", ""), metadata["name"])


def _copy(item: Object) -> Object:
    copied: Object = msgspec.json.decode(msgspec.json.encode(item))
    return copied


def _content(item: Object) -> Object:
    return {name: value for name, value in item.items() if name not in ("metadata", "status")}


def _has_labels(item: Object, labels: Mapping[str, str]) -> bool:
    found = item["metadata"].get("labels", {})
    return all(found.get(name) == value for name, value in labels.items())
