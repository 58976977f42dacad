"""A leading controller with brokers of a pool, its objects in a real SQLite store, and the door
through which brokers ask for topics."""

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from tidemark_operator.api.kinds import BROKER_POOL, TOPIC, Object, ResourceKind
from tidemark_operator.store.object_store import StoreError
from tidemark_operator.store.sqlite import SqliteStore
from tidemark_operator.topic_admin.service import TopicAdmin
from tidemark_protocol.topic_messages import (
    CreateTopicsRequest,
    NewTopic,
    RequestingBroker,
    TopicResult,
)

from tests.support.controller_harness import POOL, Harness, evaluate

NAMESPACE, _, POOL_NAME = POOL.partition("/")


class AtOnce(Executor):
    """Runs what it is given before it returns: the rig's brokers know no real time."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        return done


class FaultyStore(SqliteStore):
    """`fault`: what the next creates end with; `lands`: after they have happened."""

    fault: StoreError | None = None
    lands = False
    # What the next replaces end with, and whether they happen all the same.
    replace_faults: tuple[tuple[StoreError, bool], ...] = ()
    between: Callable[[], Awaitable[None]] | None = None  # somebody's write before the next one
    before_delete: Callable[[], Awaitable[None]] | None = None  # the same, of deletions
    reads = 0  # of single objects
    lists = 0

    async def list(self, kind: ResourceKind, *arguments: Any, **options: Any) -> list[Object]:
        self.lists += 1
        await evaluate()  # others ask meanwhile
        return await super().list(kind, *arguments, **options)

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        self.reads += 1
        return await super().get(kind, namespace, name)

    async def create(self, kind: ResourceKind, item: Object) -> Object:
        made = await super().create(kind, item) if self.lands or self.fault is None else item
        if self.fault is not None:
            raise self.fault
        return made

    async def delete(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        between, self.before_delete = self.before_delete, None
        if between is not None:
            await between()
        await super().delete(kind, namespace, name, uid=uid, resource_version=resource_version)

    async def replace(self, kind: ResourceKind, item: Object) -> Object:
        between, self.between = self.between, None
        if between is not None:
            await between()
        if not self.replace_faults:
            return await super().replace(kind, item)
        (fault, lands), *rest = self.replace_faults
        self.replace_faults = tuple(rest)
        if lands:
            await super().replace(kind, item)
        raise fault


class AdminHarness:
    def __init__(self, directory: Path) -> None:
        self.store = FaultyStore(directory / "objects.db", executor=AtOnce())
        self.harness = Harness(store=self.store)
        self.admin = TopicAdmin(self.store, self.harness.service)
        self._requests = 0

    async def start(self, brokers: int = 3, **pool_spec: Any) -> "AdminHarness":
        pool = {
            "metadata": {"name": POOL_NAME, "namespace": NAMESPACE},
            "spec": {"replicas": brokers, "drain": [], **pool_spec},
        }
        await self.store.create(BROKER_POOL, pool)
        await self.harness.start(brokers)
        return self

    def requesting(self) -> RequestingBroker:
        broker = self.harness.brokers[0]
        return RequestingBroker(POOL, broker.broker_id, broker.epoch)

    def request_id(self) -> str:
        self._requests += 1
        return f"request-{self._requests}"

    async def create(self, *topics: NewTopic, **how: Any) -> tuple[TopicResult, ...]:
        how = {"request_id": self.request_id(), **how}
        request = CreateTopicsRequest(self.requesting(), topics=topics, **how)
        return (await self.admin.create_topics(request)).results

    async def topic(self, name: str) -> Object:
        found = await self.store.get(TOPIC, NAMESPACE, name)
        assert found is not None, f"no Topic {name}"
        return found

    async def object_names(self) -> list[str]:
        return [item["metadata"]["name"] for item in await self.store.list(TOPIC, NAMESPACE)]
