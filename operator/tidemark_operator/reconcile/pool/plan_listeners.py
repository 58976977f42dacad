"""Plan which Services of listeners are missing or superfluous, and compute their addresses.

A Service of another type or port is deleted first and created again in a later pass: a Service
cannot change all of that in place. Addresses are published only once they are completely known.
"""

from collections.abc import Iterator

from tidemark_protocol.controller_messages import ListenerAddress
from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.broker_pool import BrokerPool, ListenerSpec
from tidemark_operator.broker_runtime.broker_runtime import (
    CreateListenerService,
    DeleteListenerService,
    ObservedListener,
    ObservedPool,
)
from tidemark_operator.resources.names import listener_service_name

MAX_BOOTSTRAP_SERVERS = 5


def plan_listeners(
    pool: BrokerPool, observed: ObservedPool
) -> Iterator[CreateListenerService | DeleteListenerService]:
    if observed.listeners is None:
        return
    wanted = _wanted(pool, observed)
    present = {door.name: door for door in observed.listeners}
    for name, (listener, broker_id) in wanted.items():
        if name not in present:
            yield CreateListenerService(listener, broker_id)
    for name, door in present.items():
        if name not in wanted or not _fits(door, wanted[name][0]):
            yield DeleteListenerService(name, door.uid)


def _wanted(
    pool: BrokerPool, observed: ObservedPool
) -> dict[str, tuple[ListenerSpec, BrokerId | None]]:
    # Also those that are being emptied: they lead until they are.
    numbers = {broker.broker_id for broker in observed.brokers if broker.instance}
    numbers |= {BrokerId(number) for number in range(pool.spec.replicas)}
    return {
        listener_service_name(pool.name, listener.name, broker_id): (listener, broker_id)
        for listener in pool.spec.listeners
        for broker_id in (None, *sorted(numbers))
    }


def _fits(door: ObservedListener, listener: ListenerSpec) -> bool:
    return (door.type, door.port) == (listener.type, listener.port)


def listener_addresses(pool: BrokerPool, observed: ObservedPool) -> tuple[ListenerAddress, ...]:
    """Return the address of each broker for each listener, as far as known."""
    nodes = {broker.broker_id: broker.node_address for broker in observed.brokers}
    found = []
    for listener in pool.spec.listeners:
        for door in _listeners_of(listener, observed):
            if door.broker_id is None:
                continue
            host, port = _address(listener, door, nodes.get(door.broker_id, ""))
            if host and port:
                found.append(ListenerAddress(listener.name, door.broker_id, host, port))
    return tuple(sorted(found, key=lambda each: (each.listener, each.broker_id)))


def bootstrap_servers(listener: ListenerSpec, observed: ObservedPool) -> str:
    """Return clients' `bootstrap.servers`, or "" until they are known.

    It has each node with a broker, or the load balancer, so it survives the loss of one.
    """
    door = next(
        (each for each in _listeners_of(listener, observed) if each.broker_id is None), None
    )
    if door is None:
        return ""
    nodes = dict.fromkeys(broker.node_address for broker in observed.brokers)
    addresses = (_address(listener, door, node) for node in nodes)
    servers = dict.fromkeys(f"{host}:{port}" for host, port in addresses if host and port)
    return ",".join(list(servers)[:MAX_BOOTSTRAP_SERVERS])


def _listeners_of(listener: ListenerSpec, observed: ObservedPool) -> Iterator[ObservedListener]:
    for door in observed.listeners or ():
        if door.listener == listener.name and _fits(door, listener):
            yield door


def _address(listener: ListenerSpec, door: ObservedListener, node_address: str) -> tuple[str, int]:
    if listener.type == "LoadBalancer":
        return door.balancer_host, door.port
    return listener.advertised_host or node_address, door.node_port
