"""Find the addresses of brokers for a client: those of the listener that it connected to.

Brokers use the listener without a name too; its addresses come from registrations and change with
each pod. Named listeners are for clients elsewhere: the operator observes their Services and sends
the addresses to all brokers. A broker without an address of a listener does not exist for its
clients.
"""

from collections.abc import Iterable

from tidemark_protocol.controller_messages import BrokerState
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_BROKER, BrokerId

from tidemark_broker.kafka_wire.messages.schema import Values
from tidemark_broker.metadata.metadata_cache import INTERNAL, MetadataCache


def client_address(metadata: MetadataCache, broker: BrokerState, listener: str) -> Values | None:
    """Return the broker's address for clients of the listener, or None if it has none now."""
    broker_id = broker.broker_id
    if listener == INTERNAL:
        endpoints = broker.endpoints
        return {"broker_id": broker_id, "host": endpoints.host, "port": endpoints.kafka_port}
    known = metadata.addresses.get((listener, broker_id))
    return (
        None
        if known is None
        else {
            "broker_id": broker_id,
            "host": known.host,
            "port": known.port,
        }
    )


def reach_all_brokers(metadata: MetadataCache, listener: str) -> bool:
    """Return whether clients of the listener can reach all live brokers."""
    return listener == INTERNAL or all(
        (listener, broker_id) in metadata.addresses or broker.is_fenced
        for broker_id, broker in metadata.brokers.items()
    )


def described_brokers(
    metadata: MetadataCache, brokers: Iterable[BrokerState], listener: str
) -> tuple[Values, ...]:
    """Return the brokers that clients of the listener can reach."""
    found = []
    for broker in brokers:
        address = client_address(metadata, broker, listener)
        if address is not None:
            more = {"rack": broker.rack or None, "is_fenced": broker.is_fenced}
            found.append(address | more)
    return tuple(found)


def with_reachable_leader(metadata: MetadataCache, partition: Values, listener: str) -> Values:
    """Return the partition, with LISTENER_NOT_FOUND if its leader has no address.

    Clients retry that error.
    """
    leader: BrokerId = partition["leader"]
    is_reachable = listener == INTERNAL or (listener, leader) in metadata.addresses
    if is_reachable or leader == NO_BROKER:
        return partition
    return partition | {"leader": NO_BROKER, "error": ErrorCode.LISTENER_NOT_FOUND}
