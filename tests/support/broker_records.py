"""Broker records as a controller stores them."""

from tidemark_operator.api.broker import BrokerControlState, BrokerRecord
from tidemark_protocol.controller_messages import Endpoints, StorageIdentity
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch

POOL = "shop/default"


NOWHERE = Endpoints("10.0.0.1", 9092, 8080, "http://b")


def storage_of(broker_id: BrokerId) -> StorageIdentity:
    return StorageIdentity(f"disk-{broker_id}", f"claim-{broker_id}")


def a_record(broker_id: BrokerId) -> BrokerRecord:
    return BrokerRecord(
        pool=POOL,
        broker_id=broker_id,
        broker_epoch=BrokerEpoch(broker_id + 1),
        clean_since=BrokerEpoch(0),
        disk_since=BrokerEpoch(0),
        controller_epoch=ControllerEpoch(1),
        state=BrokerControlState.ACTIVE,
        incarnation=f"{broker_id} first",
        endpoints=NOWHERE,
        rack="",
        storage=storage_of(broker_id),
        cluster_id="c",
    )
