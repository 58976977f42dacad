"""The simulated API server: compare-and-set, unknown outcomes, outages."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tidemark_operator.api.kinds import LEASE, TOPIC
from tidemark_operator.store.object_store import (
    AlreadyExists,
    Conflict,
    NotFound,
    OutcomeUnknown,
    StoreError,
)

from tests.simulation.engine.simulated_cluster import Cluster
from tests.simulation.engine.store import REQUESTS, RESPONSES, StoreClient, StoreFaults

Scenario = Callable[[Cluster, StoreClient], Awaitable[None]]


def lease(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "n", "name": "l"}, "spec": spec}


def run(scenario: Scenario) -> None:
    with Cluster(1) as cluster:
        process = cluster.spawn("operator", cluster.new_machine("m"), "10.7.0.1")

        async def main() -> int:
            await scenario(cluster, cluster.store.client("controller-0"))
            return 5

        process.start(main)
        cluster.run_for(20_000)
        assert (cluster.crashes, process.exit_code) == ([], 5)


async def raised(work: Awaitable[Any]) -> type[BaseException] | None:
    try:
        await work
    except StoreError as error:
        return type(error)
    return None


def test_a_replace_compares_versions() -> None:
    async def scenario(cluster: Cluster, store: StoreClient) -> None:
        first = await store.create(LEASE, lease(a=1))
        assert await raised(store.create(LEASE, lease())) is AlreadyExists
        second = await store.replace(LEASE, {**first, "spec": {"a": 2}})
        assert second["metadata"]["uid"] == first["metadata"]["uid"]
        assert second["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]
        assert await raised(store.replace(LEASE, {**first, "spec": {"a": 3}})) is Conflict
        assert await store.get(LEASE, "n", "l") == second
        assert await store.list(LEASE, None) == [second]
        assert await raised(store.delete(LEASE, "n", "l", uid="other")) is Conflict
        await store.delete(LEASE, "n", "l", uid=first["metadata"]["uid"])
        assert await store.get(LEASE, "n", "l") is None
        assert await raised(store.replace(LEASE, second)) is NotFound

    run(scenario)


def test_nobody_shares_an_object_with_the_server() -> None:
    async def scenario(cluster: Cluster, store: StoreClient) -> None:
        item = lease(a=[1])
        created = await store.create(LEASE, item)
        created["spec"]["a"].append(2)
        item["spec"]["a"].append(3)
        stored = await store.get(LEASE, "n", "l")
        assert stored is not None and stored["spec"] == {"a": [1]}

    run(scenario)


def test_status_and_content_are_written_apart() -> None:
    async def scenario(cluster: Cluster, store: StoreClient) -> None:
        topic = await store.create(TOPIC, {**lease(p=1), "status": {"x": 1}})
        assert "status" not in topic
        topic = await store.replace_status(TOPIC, {**topic, "status": {"x": 2}, "spec": {}})
        assert (topic["spec"], topic["status"]) == ({"p": 1}, {"x": 2})
        topic = await store.replace(TOPIC, {**topic, "status": {"x": 3}, "spec": {"p": 2}})
        assert (topic["spec"], topic["status"]) == ({"p": 2}, {"x": 2})
        assert topic["metadata"]["generation"] == 2

    run(scenario)


def test_a_lost_answer_leaves_the_write_and_a_lost_request_does_not() -> None:
    async def scenario(cluster: Cluster, store: StoreClient) -> None:
        cluster.store.faults = StoreFaults(request_lost=1.0)
        assert await raised(store.create(LEASE, lease())) is OutcomeUnknown
        cluster.store.faults = StoreFaults()
        assert await store.get(LEASE, "n", "l") is None
        cluster.store.faults = StoreFaults(response_lost=1.0)
        assert await raised(store.create(LEASE, lease())) is OutcomeUnknown
        cluster.store.faults = StoreFaults()
        assert await store.get(LEASE, "n", "l") is not None

    run(scenario)


def test_a_write_whose_caller_is_gone_is_written_all_the_same() -> None:
    async def scenario(cluster: Cluster, store: StoreClient) -> None:
        writing = asyncio.ensure_future(store.create(LEASE, lease()))
        await asyncio.sleep(0)
        writing.cancel()
        await asyncio.sleep(1)
        assert await store.get(LEASE, "n", "l") is not None

    run(scenario)


def test_an_outage_refuses_reads_and_leaves_writes_unknown() -> None:
    async def scenario(cluster: Cluster, store: StoreClient) -> None:
        cluster.store.is_down = True
        assert await raised(store.get(LEASE, "n", "l")) is StoreError
        assert await raised(store.create(LEASE, lease())) is OutcomeUnknown

    run(scenario)


def test_an_operator_out_of_reach_is_so_alone_and_in_one_direction() -> None:
    async def scenario(cluster: Cluster, store: StoreClient) -> None:
        other = cluster.store.client("controller-1")
        cluster.store.out_of_reach["controller-0"] = REQUESTS
        assert await raised(store.create(LEASE, lease())) is OutcomeUnknown
        assert await raised(store.get(LEASE, "n", "l")) is StoreError
        assert await other.get(LEASE, "n", "l") is None
        cluster.store.out_of_reach["controller-0"] = RESPONSES
        assert await raised(store.create(LEASE, lease())) is OutcomeUnknown
        assert await raised(store.get(LEASE, "n", "l")) is StoreError
        assert await other.get(LEASE, "n", "l") is not None

    run(scenario)
