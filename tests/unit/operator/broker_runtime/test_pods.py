"""Pods, claims and Services as one observation, and what their events mean."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tidemark_operator.api.kinds import CLAIM, POD, SERVICE
from tidemark_operator.broker_runtime.broker_runtime import BrokerProcess, CreateVolumeClaim
from tidemark_operator.broker_runtime.pods import PodRuntime, observed_broker
from tidemark_operator.manager.leadership import is_pod_terminated
from tidemark_operator.manager.watch import pod_trouble
from tidemark_operator.reconcile.pool.plan import plan_pool, pool_conditions
from tidemark_operator.resources.broker_pod import PodSettings
from tidemark_operator.resources.names import broker_labels
from tidemark_protocol.ids import BrokerId

from tests.support.api_objects import broker_pool, with_spec
from tests.support.reconcile_harness import CountingStore

POOL = broker_pool(replicas=2, image="image", imagePullPolicy="Never", storage={"size": "1Gi"})
ZERO = BrokerId(0)


def pod(status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    labels = broker_labels("default", ZERO)
    return {
        "metadata": {"name": "default-0", "uid": "u", "labels": labels, **metadata},
        "status": status or {},
    }


READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (None, BrokerProcess.ABSENT),
        (pod({"phase": "Pending"}), BrokerProcess.STARTING),
        (pod(READY), BrokerProcess.RUNNING),
        (pod(READY, deletionTimestamp="now"), BrokerProcess.STOPPING),
        (pod({"phase": "Failed"}), BrokerProcess.EXITED),
        (pod({"phase": "Failed"}, deletionTimestamp="now"), BrokerProcess.STOPPING),
    ],
)
def test_what_runs_is_read_from_the_pod(item: Any, expected: BrokerProcess) -> None:
    observed = observed_broker(ZERO, pod=item, claim=None, has_endpoint=False)
    assert observed.process is expected


def test_all_actions_done_leave_none_to_do(tmp_path: Path) -> None:
    async def story() -> None:
        store = CountingStore(tmp_path / "objects.db")
        runtime = PodRuntime(store, PodSettings())
        for action in plan_pool(POOL, await runtime.observe(POOL)):
            await runtime.apply(POOL, action)
        assert plan_pool(POOL, await runtime.observe(POOL)) == ()
        claims = await store.list(CLAIM, "shop")
        pods = await store.list(POD, "shop")
        services = await store.list(SERVICE, "shop")
        assert [claim["metadata"]["name"] for claim in claims] == [
            "data-default-0",
            "data-default-1",
        ]
        assert [each["metadata"]["name"] for each in pods] == ["default-0", "default-1"]
        assert len(services) == 3
        claim_uids = [
            env["value"]
            for each in pods
            for env in each["spec"]["containers"][0]["env"]
            if env["name"] == "TIDEMARK_CLAIM_UID"
        ]
        assert claim_uids == [claim["metadata"]["uid"] for claim in claims]
        store.close()

    asyncio.run(story())


def test_a_claim_kept_from_a_pool_of_another_access_mode_is_told_and_stays(tmp_path: Path) -> None:
    async def story() -> None:
        store = CountingStore(tmp_path / "objects.db")
        runtime = PodRuntime(store, PodSettings())
        await runtime.apply(POOL, CreateVolumeClaim(ZERO))
        pool = with_spec(
            POOL, storage=msgspec.structs.replace(POOL.spec.storage, access_mode="ReadWriteOncePod")
        )
        for action in plan_pool(pool, await runtime.observe(pool)):
            await runtime.apply(pool, action)
        observed = await runtime.observe(pool)
        assert plan_pool(pool, observed) == ()
        modes = [each["spec"]["accessModes"] for each in await store.list(CLAIM, "shop")]
        assert modes == [["ReadWriteOnce"], ["ReadWriteOncePod"]]
        both = frozenset({BrokerId(0), BrokerId(1)})
        ready, storage = pool_conditions(pool, observed, both)
        assert ready.is_true
        assert (storage.type, storage.reason) == ("StorageAsAsked", "OtherAccessMode")
        assert storage.message.endswith("Brokers: 0: ReadWriteOnce")
        store.close()

    asyncio.run(story())


def test_a_gone_pools_claims_follow_their_own_policy(tmp_path: Path) -> None:
    async def story() -> None:
        store = CountingStore(tmp_path / "objects.db")
        runtime = PodRuntime(store, PodSettings())
        for action in plan_pool(POOL, await runtime.observe(POOL)):
            await runtime.apply(POOL, action)
        claim = await store.get(CLAIM, "shop", "data-default-1")
        assert claim is not None
        claim["metadata"]["labels"]["tidemark.dev/deletion-policy"] = "Delete"
        await store.replace(CLAIM, claim)
        await runtime.on_pool_gone("shop", "default")
        left = [each["metadata"]["name"] for each in await store.list(CLAIM, "shop")]
        assert left == ["data-default-0"]  # S4
        store.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("event", "item", "reason"),
    [
        ("DELETED", pod(READY), "PodGone"),
        ("MODIFIED", pod(READY, deletionTimestamp="now"), "PodDeleted"),
        ("MODIFIED", pod({"phase": "Failed"}), "PodEnded"),
        (
            "MODIFIED",
            pod({"containerStatuses": [{"state": {"terminated": {"exitCode": 137}}}]}),
            "ContainerTerminated",
        ),
        ("MODIFIED", pod({"containerStatuses": [{"state": {"waiting": {}}}]}), None),
        ("ADDED", pod(READY), None),
    ],
)
def test_only_a_pods_end_is_trouble(event: str, item: Any, reason: str | None) -> None:
    trouble = pod_trouble(event, item, "shop")
    assert (None if trouble is None else trouble.reason) == reason
    assert trouble is None or (trouble.pool, trouble.broker_id) == ("shop/default", 0)


def test_a_leaders_pod_is_dead_only_when_a_live_read_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        store = CountingStore(tmp_path / "objects.db")
        created = await store.create(POD, {"metadata": {"name": "op-1", "namespace": "sys"}})
        uid = created["metadata"]["uid"]
        assert not await is_pod_terminated(store, "sys", f"op-1/{uid}")
        assert await is_pod_terminated(store, "sys", "op-1/another")
        assert await is_pod_terminated(store, "sys", f"op-2/{uid}")
        assert not await is_pod_terminated(store, "sys", "somebody")
        ended = {"containerStatuses": [{"state": {"terminated": {}}}]}
        await store.replace(POD, {**created, "status": ended})
        assert await is_pod_terminated(store, "sys", f"op-1/{uid}")
        store.close()

    asyncio.run(story())


def test_kill_deletes_the_pod_that_there_is(tmp_path: Path) -> None:
    async def story() -> None:
        store = CountingStore(tmp_path / "objects.db")
        runtime = PodRuntime(store, PodSettings())
        for action in plan_pool(POOL, await runtime.observe(POOL)):
            await runtime.apply(POOL, action)
        assert await runtime.kill("shop/default", ZERO)
        assert [each["metadata"]["name"] for each in await store.list(POD, "shop")] == ["default-1"]
        assert not await runtime.kill("shop/default", ZERO)

    asyncio.run(story())
