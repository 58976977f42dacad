"""Say by which addresses of nodes and load balancers clients reach a broker."""

from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.broker_pool import BrokerPool, ListenerSpec
from tidemark_operator.broker_runtime.broker_runtime import ObservedListener


def outside_addresses(
    pool: BrokerPool,
    broker_id: BrokerId,
    node_addresses: tuple[str, ...],
    services: tuple[ObservedListener, ...],
) -> tuple[str, ...]:
    """Return where clients outside reach a broker, at listeners that have no `advertisedHost`.

    By the bootstrap port of any node of the pool a client may come to each broker, so the addresses
    of all these nodes are names of each.
    """
    found: list[str] = []
    for listener in _with_changing_addresses(pool):
        if listener.type == "NodePort":
            found += node_addresses
            continue
        found += (
            each.balancer_host
            for each in services
            if each.listener == listener.name
            and each.broker_id in (None, broker_id)
            and each.balancer_host
        )
    return tuple(dict.fromkeys(found))


def awaits_balancer(
    pool: BrokerPool, broker_id: BrokerId, services: tuple[ObservedListener, ...]
) -> bool:
    """Return whether a load balancer of this broker has no address yet."""
    known = {(each.listener, each.broker_id) for each in services if each.balancer_host}
    return any(
        (listener.name, door_to) not in known
        for listener in _with_changing_addresses(pool)
        if listener.type == "LoadBalancer"
        for door_to in (None, broker_id)
    )


def has_changing_addresses(pool: BrokerPool) -> bool:
    """Return whether names of its brokers are addresses that Kubernetes may change."""
    return bool(_with_changing_addresses(pool))


def _with_changing_addresses(pool: BrokerPool) -> list[ListenerSpec]:
    return [
        each
        for each in pool.spec.listeners
        if each.tls is not False and (each.type == "LoadBalancer" or not each.advertised_host)
    ]
