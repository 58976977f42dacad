"""Name a broker in its certificate: its identity, and all names and addresses that clients use."""

import ipaddress

from tidemark_protocol.certificate_names import broker_certificate_name
from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.broker_pool import BrokerPool
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


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
