"""Services of listeners and the addresses that clients outside are told."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from tidemark_operator.api.broker_pool import ListenerSpec
from tidemark_operator.api.kinds import SERVICE
from tidemark_operator.broker_runtime.broker_runtime import (
    BrokerProcess,
    CreateListenerService,
    DeleteListenerService,
    ObservedBroker,
    ObservedListener,
    ObservedPool,
)
from tidemark_operator.broker_runtime.pods import PodRuntime, observed_listener
from tidemark_operator.reconcile.pool.plan import plan_pool
from tidemark_operator.reconcile.pool.plan_listeners import (
    bootstrap_servers,
    listener_addresses,
    plan_listeners,
)
from tidemark_operator.resources.broker_pod import PodSettings
from tidemark_protocol.controller_messages import ListenerAddress
from tidemark_protocol.ids import BrokerId

from tests.support.api_objects import broker_pool, with_spec
from tests.support.reconcile_harness import CountingStore

ZERO, ONE = BrokerId(0), BrokerId(1)
OUTSIDE = ListenerSpec("outside", "NodePort", 9094)
CLOUD = ListenerSpec("cloud", "LoadBalancer", 9095)
POOL = broker_pool(replicas=2, image="image", imagePullPolicy="Never", storage={"size": "1Gi"})
POOL = with_spec(POOL, listeners=(OUTSIDE,))


def broker(broker_id: BrokerId, node_address: str = "") -> ObservedBroker:
    return ObservedBroker(
        broker_id, BrokerProcess.RUNNING, f"pod-{broker_id}", node_address=node_address
    )


def kafka_client(
    listener: ListenerSpec, broker_id: BrokerId | None, **more: Any
) -> ObservedListener:
    which = "bootstrap" if broker_id is None else broker_id
    name = f"default-{listener.name}-{which}"
    return ObservedListener(
        name, f"uid-{name}", listener.name, broker_id, listener.type, listener.port, **more
    )


RUNNING = (broker(ZERO, "10.0.0.1"), broker(ONE, "10.0.0.2"))
NODE_PORTS = (
    kafka_client(OUTSIDE, None, node_port=30000),
    kafka_client(OUTSIDE, ZERO, node_port=30001),
    kafka_client(OUTSIDE, ONE, node_port=30002),
)


def test_what_is_missing_is_made_for_each_broker_and_to_begin_with() -> None:
    assert list(plan_listeners(POOL, ObservedPool(RUNNING, listeners=()))) == [
        CreateListenerService(OUTSIDE, None),
        CreateListenerService(OUTSIDE, ZERO),
        CreateListenerService(OUTSIDE, ONE),
    ]
    assert list(plan_listeners(POOL, ObservedPool(RUNNING, listeners=NODE_PORTS))) == []


def test_what_is_of_no_listener_or_of_another_port_is_removed() -> None:
    other = with_spec(POOL, listeners=(msgspec.structs.replace(OUTSIDE, port=9099),))
    removals = [DeleteListenerService(each.name, each.uid) for each in NODE_PORTS]
    assert list(plan_listeners(other, ObservedPool(RUNNING, listeners=NODE_PORTS))) == removals
    none = with_spec(POOL, listeners=())
    assert list(plan_listeners(none, ObservedPool(RUNNING, listeners=NODE_PORTS))) == removals


def test_a_broker_that_is_being_emptied_keeps_its_door_until_it_is_gone() -> None:
    fewer = with_spec(POOL, replicas=1)
    assert list(plan_listeners(fewer, ObservedPool(RUNNING, listeners=NODE_PORTS))) == []
    (removal,) = plan_listeners(fewer, ObservedPool(RUNNING[:1], listeners=NODE_PORTS))
    assert removal == DeleteListenerService("default-outside-1", "uid-default-outside-1")


def test_a_runtime_without_services_is_asked_for_none() -> None:
    assert list(plan_listeners(POOL, ObservedPool(RUNNING))) == []


def test_node_ports_are_at_the_address_of_each_brokers_node() -> None:
    observed = ObservedPool(RUNNING, listeners=NODE_PORTS)
    assert listener_addresses(POOL, observed) == (
        ListenerAddress("outside", ZERO, "10.0.0.1", 30001),
        ListenerAddress("outside", ONE, "10.0.0.2", 30002),
    )
    assert bootstrap_servers(OUTSIDE, observed) == "10.0.0.1:30000,10.0.0.2:30000"


def test_an_advertised_host_stands_for_all_nodes() -> None:
    named = msgspec.structs.replace(OUTSIDE, advertised_host="kafka.example")
    observed = ObservedPool(RUNNING, listeners=NODE_PORTS)
    addresses = listener_addresses(with_spec(POOL, listeners=(named,)), observed)
    assert {(each.host, each.port) for each in addresses} == {
        ("kafka.example", 30001),
        ("kafka.example", 30002),
    }
    assert bootstrap_servers(named, observed) == "kafka.example:30000"


def test_a_broker_that_is_not_placed_yet_or_has_no_port_has_no_address() -> None:
    listeners = (kafka_client(OUTSIDE, ZERO), NODE_PORTS[2])
    observed = ObservedPool((broker(ZERO, "10.0.0.1"), broker(ONE)), listeners=listeners)
    assert listener_addresses(POOL, observed) == ()
    assert bootstrap_servers(OUTSIDE, observed) == ""


def test_load_balancers_are_at_their_own_address() -> None:
    spec = with_spec(POOL, listeners=(CLOUD,))
    listeners = (
        kafka_client(CLOUD, None, balancer_host="lb.example"),
        kafka_client(CLOUD, ZERO, balancer_host="192.0.2.7"),
        kafka_client(CLOUD, ONE),
    )
    observed = ObservedPool(RUNNING, listeners=listeners)
    assert listener_addresses(spec, observed) == (
        ListenerAddress("cloud", ZERO, "192.0.2.7", 9095),
    )
    assert bootstrap_servers(CLOUD, observed) == "lb.example:9095"


def test_a_service_is_read_as_kubernetes_fills_it_in() -> None:
    service = {
        "metadata": {
            "name": "default-cloud-1",
            "uid": "u",
            "labels": {"tidemark.dev/listener": "cloud", "tidemark.dev/broker-id": "1"},
        },
        "spec": {
            "type": "LoadBalancer",
            "ports": [
                {"port": 1, "targetPort": "somebody's", "nodePort": 31001},
                {"port": 9095, "targetPort": "cloud", "nodePort": 31000},
            ],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}},
    }
    assert observed_listener(service) == ObservedListener(
        "default-cloud-1", "u", "cloud", ONE, "LoadBalancer", 9095, 31000, "192.0.2.7"
    )
    service["spec"] = {"type": "ClusterIP", "ports": []}
    assert observed_listener(service).port == 0  # does not fit: it is made anew


def test_all_actions_done_leave_none_to_do_and_a_listener_gone_takes_its_services(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        store = CountingStore(tmp_path / "objects.db")
        runtime = PodRuntime(store, PodSettings())
        for spec, services in ((POOL, 6), (with_spec(POOL, listeners=()), 3)):
            for action in plan_pool(spec, await runtime.observe(spec)):
                await runtime.apply(spec, action)
            assert plan_pool(spec, await runtime.observe(spec)) == ()
            assert len(await store.list(SERVICE, "shop")) == services

    asyncio.run(story())
