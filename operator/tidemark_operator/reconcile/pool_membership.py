"""Tell which brokers of a pool are active and which leave: what pool and topic passes share."""

from collections.abc import Iterable

from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.kinds import Object
from tidemark_operator.controller.service import ControllerService


def leaving_brokers(pool: Object, known: Iterable[BrokerId]) -> frozenset[BrokerId]:
    """Return the brokers that are named in spec.drain, or above spec.replicas.

    `pool` has the schema's defaults.
    """
    spec = pool["spec"]
    drained = {BrokerId(int(number)) for number in spec["drain"]}
    return frozenset(drained | {each for each in known if each >= spec["replicas"]})


def active_broker_ids(controller: ControllerService, pool: str) -> frozenset[BrokerId]:
    return frozenset(broker.broker_id for broker in controller.brokers(pool) if broker.is_active)
