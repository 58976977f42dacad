"""The rack of a broker, from its pod's node."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tidemark_operator.api.kinds import BROKER_POOL, NODE, POD, TOPIC, Object, ResourceKind
from tidemark_operator.broker_runtime.node_racks import NodeRacks
from tidemark_operator.store.object_store import Forbidden
from tidemark_protocol.controller_messages import Endpoints, RegisterRequest, StorageIdentity
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch

from tests.support.reconcile_harness import Cluster, CountingStore

ZONE = "topology.kubernetes.io/zone"


def request(rack: str = "said") -> RegisterRequest:
    return RegisterRequest(
        "shop/default",
        BrokerId(0),
        "",
        "incarnation",
        Endpoints("10.0.0.1", 9092, 8080, "http://x"),
        rack,
        StorageIdentity("directory"),
        BrokerEpoch(-1),
        ControllerEpoch(-1),
        BrokerEpoch(-1),
        -1,
        (),
    )


class WithoutRights(CountingStore):
    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        if kind is NODE:
            raise Forbidden("nodes is forbidden")
        return await super().get(kind, namespace, name)


async def furnished(store: CountingStore, *, labels: dict[str, str], **spec: Any) -> CountingStore:
    await store.create(
        BROKER_POOL, {"metadata": {"name": "default", "namespace": "shop"}, "spec": spec}
    )
    pod = {"metadata": {"name": "default-0", "namespace": "shop"}, "spec": {"nodeName": "n1"}}
    await store.create(POD, pod)
    await store.create(NODE, {"metadata": {"name": "n1", "namespace": "", "labels": labels}})
    return store


@pytest.mark.parametrize(
    ("spec", "labels", "kind", "expected"),
    [
        ({"rackKey": ZONE}, {ZONE: "zone-a"}, CountingStore, "zone-a"),
        ({"rackKey": ZONE}, {}, CountingStore, ""),
        ({}, {ZONE: "zone-a"}, CountingStore, "said"),
        ({"rackKey": ZONE}, {ZONE: "zone-a"}, WithoutRights, ""),
    ],
)
def test_the_rack_is_the_nodes_label(
    tmp_path: Path,
    spec: dict[str, Any],
    labels: dict[str, str],
    kind: type[CountingStore],
    expected: str,
) -> None:
    async def story() -> None:
        store = await furnished(kind(tmp_path / "objects.db"), labels=labels, **spec)
        assert await NodeRacks(store)(request()) == expected
        store.close()

    asyncio.run(story())


def test_replicas_wait_for_racks_that_nobody_knows_yet(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        await cluster.apply(BROKER_POOL, "default", replicas=3, rackKey=ZONE)
        await cluster.topic()
        cluster.controller.active = {0, 2}
        await cluster.pass_topic()
        condition = await cluster.condition(TOPIC)
        assert condition["reason"] == "WaitingForBrokers"
        assert (
            "waiting for the first registration of brokers 1 of pool default"
            in condition["message"]
        )
        cluster.controller.active = {0, 1, 2}
        await cluster.pass_topic()
        assert (await cluster.condition(TOPIC))["status"] == "True"
        cluster.store.close()

    asyncio.run(story())
