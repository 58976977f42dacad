"""The reconciler of BrokerPools over a real store."""

import asyncio
import contextlib
from pathlib import Path

import msgspec
import pytest
from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.kinds import BROKER_POOL, Object, ResourceKind
from tidemark_operator.api.pool_security import SecuritySpec
from tidemark_operator.broker_runtime.broker_runtime import (
    BrokerProcess,
    CreateBootstrapService,
    CreateBrokerService,
    CreateDisruptionBudget,
    CreateVolumeClaim,
    ObservedBroker,
    ObservedPool,
    PoolAction,
    StartBroker,
)
from tidemark_operator.store.object_store import OutcomeUnknown, Rejected, StoreError
from tidemark_protocol.ids import BrokerId

from tests.support.reconcile_harness import NAMESPACE, Cluster

ZERO = BrokerId(0)


def test_a_pool_is_ready_when_all_its_brokers_are_active(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        await cluster.apply(BROKER_POOL, "default", replicas=3)
        cluster.controller.active = {0, 2}
        await cluster.pass_pool()
        condition = await cluster.condition(BROKER_POOL, "default")
        assert condition["message"] == "2 of 3 brokers are active; not active: 1"
        cluster.controller.active = {0, 1, 2}
        await cluster.pass_pool()
        assert (await cluster.condition(BROKER_POOL, "default"))["status"] == "True"
        status = (await cluster.stored(BROKER_POOL, "default"))["status"]
        assert (status["replicas"], status["activeBrokers"]) == (3, 3)
        cluster.store.close()

    asyncio.run(story())


def test_a_deleted_pool_is_confirmed_by_a_live_read(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        await cluster.pass_pool()
        assert cluster.runtime.gone == [f"{NAMESPACE}/default"]
        cluster.store.close()

    asyncio.run(story())


def test_what_the_api_server_refuses_is_told_to_the_user_and_tried_again(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        await cluster.apply(BROKER_POOL, "default", replicas=1)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(cluster.runtime, "apply", refusing)
            assert await cluster.pass_pool() is not None
        condition = await cluster.condition(BROKER_POOL, "default")
        assert condition["reason"] == "Refused"
        assert condition["message"].startswith("exceeded quota: pods; 0 of 1 brokers are active")
        cluster.controller.active = {0}
        cluster.time_ms += 2000
        await cluster.pass_pool()
        assert (await cluster.condition(BROKER_POOL, "default"))["status"] == "True"
        cluster.store.close()

    async def refusing(pool: BrokerPool, action: PoolAction) -> None:
        raise Rejected("exceeded quota: pods")

    asyncio.run(story())


@pytest.mark.parametrize("error", [Rejected("bad annotation"), OutcomeUnknown("500")])
def test_what_one_action_meets_keeps_nothing_else_from_being_done(
    tmp_path: Path, error: StoreError
) -> None:
    """As a listener's Service that the API server or a webhook refuses."""

    async def story() -> None:
        cluster = Cluster(tmp_path)
        await cluster.apply(BROKER_POOL, "default", replicas=1, moveBytesPerSecond=4096)
        really = cluster.runtime.apply

        async def apply(pool: BrokerPool, action: PoolAction) -> None:
            if isinstance(action, CreateBrokerService | CreateBootstrapService):
                raise error
            await really(pool, action)

        cluster.controller.active = {0}
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(cluster.runtime, "apply", apply)
            with contextlib.suppress(OutcomeUnknown):
                assert await cluster.pass_pool() is not None
                assert isinstance(error, Rejected)
        assert cluster.runtime.actions == [
            CreateVolumeClaim(ZERO),
            StartBroker(ZERO),
            CreateDisruptionBudget(),
        ]
        assert cluster.controller.settings.move_bytes_per_second == 4096
        condition = await cluster.condition(BROKER_POOL, "default")
        assert condition["reason"] == (
            "Refused" if isinstance(error, Rejected) else "BrokersActive"
        )
        cluster.store.close()

    asyncio.run(story())


def test_how_fast_replicas_may_be_moved_is_told_to_the_controller(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.apply(BROKER_POOL, "default", replicas=1, moveBytesPerSecond=4096)
        await cluster.pass_pool()
        assert cluster.controller.settings.move_bytes_per_second == 4096
        await cluster.apply(BROKER_POOL, "default", replicas=1, moveBytesPerSecond=0)
        await cluster.pass_pool()
        assert cluster.controller.settings.move_bytes_per_second == 0  # unlimited

    cluster = Cluster(tmp_path)
    try:
        asyncio.run(story(cluster))
    finally:
        cluster.store.close()


OPEN = {"tls": {"mode": "Disabled"}, "authentication": "none"}
CLOSED = {"tls": {"mode": "Required"}, "authentication": "kubernetes"}


def test_security_of_a_new_pool_is_written_before_its_brokers_are_made(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        await cluster.apply(BROKER_POOL, "default", replicas=1)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(cluster.store, "replace", rejecting)
            await cluster.pass_pool()
        assert cluster.runtime.actions == []
        condition = await cluster.condition(BROKER_POOL, "default")
        assert (condition["status"], condition["reason"]) == ("False", "Refused")
        await cluster.pass_pool()
        stored = await cluster.stored(BROKER_POOL, "default")
        assert stored["spec"]["security"] == stored["status"]["security"] == CLOSED
        assert StartBroker(ZERO) in cluster.runtime.actions
        cluster.store.close()

    asyncio.run(story())


def test_pool_of_the_former_release_runs_on_open_whatever_the_store_says(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        stored = await cluster.apply(BROKER_POOL, "default", replicas=1)
        former = {"observedGeneration": 1, "replicas": 1}
        await cluster.store.replace_status(BROKER_POOL, {**stored, "status": former})
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(cluster.store, "replace", rejecting)
            await cluster.pass_pool()
        status = (await cluster.stored(BROKER_POOL, "default"))["status"]
        assert status["security"] == OPEN
        assert StartBroker(ZERO) in cluster.runtime.actions
        await cluster.pass_pool()
        assert (await cluster.stored(BROKER_POOL, "default"))["spec"]["security"] == OPEN
        cluster.store.close()

    asyncio.run(story())


def test_pods_are_compared_with_the_security_in_force(tmp_path: Path) -> None:
    """Else a spec that lost its fields would replace the brokers of a closed pool."""

    async def story() -> None:
        cluster = Cluster(tmp_path)
        stored = await cluster.apply(BROKER_POOL, "default", replicas=1)
        status = {"observedGeneration": 1, "replicas": 1, "security": CLOSED}
        await cluster.store.replace_status(BROKER_POOL, {**stored, "status": status})
        cluster.controller.active = {0}

        async def observe(pool: BrokerPool) -> ObservedPool:
            broker = ObservedBroker(
                ZERO,
                BrokerProcess.RUNNING,
                instance="u",
                storage_policy="Retain",
                security=closed_security(),
                is_outdated=pool.spec.security != closed_security(),
            )
            return ObservedPool((broker,))

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(cluster.runtime, "observe", observe)
            await cluster.pass_pool()
        assert cluster.runtime.actions == []
        stored = await cluster.stored(BROKER_POOL, "default")
        assert stored["spec"]["security"] == CLOSED
        assert stored["status"]["updatedBrokers"] == 1
        cluster.store.close()

    asyncio.run(story())


def closed_security() -> SecuritySpec:
    return msgspec.convert(CLOSED, SecuritySpec)


async def rejecting(kind: ResourceKind, item: Object) -> Object:
    raise Rejected("not this")
