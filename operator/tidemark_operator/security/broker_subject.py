"""Name a broker in its certificate: its identity, and all names and addresses that clients use."""

import ipaddress

from tidemark_protocol.certificate_names import broker_certificate_name
from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.broker_pool import BrokerPool, ListenerSpec
from tidemark_operator.broker_runtime.broker_runtime import ObservedListener
from tidemark_operator.resources.names import (
    bootstrap_name,
    broker_name,
    listener_service_name,
)
from tidemark_operator.security.certificate_authority import CertificateSubject

CLUSTER_DOMAIN = "cluster.local"


def broker_subject(
    pool: BrokerPool,
    broker_id: BrokerId,
    pod_addresses: tuple[str, ...],
    outside: tuple[str, ...] = (),
) -> CertificateSubject:
    """Return the subject; listeners' advertised hosts are among it.

    `outside` are addresses and names of nodes and load balancers by which clients reach the broker.
    """
    services = [bootstrap_name(pool.name), broker_name(pool.name, broker_id)]
    for listener in pool.spec.listeners:
        services.append(listener_service_name(pool.name, listener.name, None))
        services.append(listener_service_name(pool.name, listener.name, broker_id))
    names = [broker_certificate_name(pool.pool, broker_id), "localhost"]
    for service in services:
        short = f"{service}.{pool.namespace}"
        names += [service, short, f"{short}.svc", f"{short}.svc.{CLUSTER_DOMAIN}"]
    addresses = ["127.0.0.1", "::1", *pod_addresses]
    advertised = (each.advertised_host for each in pool.spec.listeners)
    for host in filter(None, (*advertised, *outside)):
        (addresses if _is_address(host) else names).append(host)
    return CertificateSubject(tuple(names), tuple(addresses))


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
        if each.tls and (each.type == "LoadBalancer" or not each.advertised_host)
    ]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
