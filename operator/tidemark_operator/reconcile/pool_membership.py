"""Tell which brokers of a pool are active and which leave: what pool and topic passes share."""

from collections.abc import Iterable

from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.broker_pool import PoolSpec
from tidemark_operator.controller.service import ControllerService


def leaving_brokers(spec: PoolSpec, known: Iterable[BrokerId]) -> frozenset[BrokerId]:
    """Return the brokers that are named in spec.drain, or above spec.replicas."""
    return spec.drain | {broker_id for broker_id in known if broker_id >= spec.replicas}


def active_broker_ids(controller: ControllerService, pool: str) -> frozenset[BrokerId]:
    return frozenset(broker.broker_id for broker in controller.brokers(pool) if broker.is_active)
