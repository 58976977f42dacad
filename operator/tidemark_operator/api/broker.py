"""Read and write Broker objects: what is durably known of one broker.

`clean_since` decides which ISR and ELR entries of this broker are still valid: an entry (id, epoch)
is valid iff its epoch >= clean_since (S2). It rises in the same compare-and-set as the broker
epoch, whenever a start was not shown to be clean. For topics with flush Always `disk_since` decides
instead: it rises only if the disk is not shown to be the one that synced what these entries stand
for (S14).

Producer ids are allocated in rounds of one block for each broker id.
"""

from dataclasses import dataclass
from enum import Enum

from tidemark_protocol.controller_messages import Endpoints, StorageIdentity
from tidemark_protocol.ids import (
    FORGED_PRODUCER_IDS_FROM,
    NO_EPOCH,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
)

from tidemark_operator.api.kinds import BROKER, Object
from tidemark_operator.api.partition_slice import MalformedObject, labels_of, split_pool

BLOCK_SIZE = 1000
MAX_BROKERS = 1000  # of a pool: broker ids are 0 to 999
IDS_PER_ROUND = BLOCK_SIZE * MAX_BROKERS

NO_ROUND = -1


def first_producer_id(producer_id_round: int, broker_id: BrokerId) -> int:
    return producer_id_round * IDS_PER_ROUND + broker_id * BLOCK_SIZE


# guard: producer-ids-found-on-disk (S5)
def round_of(producer_id: int) -> int:
    """Return the round of a producer id, or -1 if it was never allocated."""
    return producer_id // IDS_PER_ROUND if 0 <= producer_id < FORGED_PRODUCER_IDS_FROM else NO_ROUND


class BrokerControlState(Enum):
    STARTING = "Starting"  # registered, has not asked to serve yet: fenced
    ACTIVE = "Active"
    FENCED = "Fenced"
    DRAINING = "Draining"  # controlled shutdown: leads nothing, enters no ISR
    GONE = "Gone"


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    pool: str
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    clean_since: BrokerEpoch
    disk_since: BrokerEpoch  # never above clean_since: a log that is whole has what was synced
    controller_epoch: ControllerEpoch  # of the controller that wrote it last (S16)
    state: BrokerControlState
    incarnation: str
    endpoints: Endpoints
    rack: str
    storage: StorageIdentity
    cluster_id: str
    producer_id_round: int = NO_ROUND  # the last one used, or seen on its disk (S5)

    @property
    def is_live(self) -> bool:
        """Return whether the broker may follow, be in an ISR and, unless draining, lead."""
        return self.state in (BrokerControlState.ACTIVE, BrokerControlState.DRAINING)

    @property
    def is_stopping(self) -> bool:
        return self.state is BrokerControlState.DRAINING


BROKER_ID_LABEL = "tidemark.dev/broker-id"


def broker_object_name(record: BrokerRecord) -> str:
    return f"{split_pool(record.pool)[1]}-{record.broker_id}"


def broker_object(record: BrokerRecord, stored: Object | None) -> Object:
    """Return the object; other fields and the resource version of `stored` are kept."""
    namespace, _ = split_pool(record.pool)
    base: Object = dict(stored) if stored is not None else {}
    metadata = dict(base.get("metadata", {}))
    metadata.update(namespace=namespace, name=broker_object_name(record))
    labels = {**labels_of(record.pool), "app.kubernetes.io/component": "broker"}
    labels[BROKER_ID_LABEL] = str(record.broker_id)
    metadata["labels"] = {**metadata.get("labels", {}), **labels}
    base.update(apiVersion=BROKER.api_version, kind=BROKER.kind, metadata=metadata)
    base["spec"] = {**base.get("spec", {}), "pool": record.pool, "brokerId": record.broker_id}
    base["status"] = {**base.get("status", {}), **_broker_status(record)}
    return base


def is_where_brokers_are(item: Object) -> bool:
    """Return False for a copy of a Broker object under another name or in another namespace."""
    metadata, spec = item["metadata"], item.get("spec", {})
    namespace, pool = split_pool(str(spec.get("pool")))
    place = (metadata.get("namespace"), metadata.get("name"))
    return place == (namespace, f"{pool}-{spec.get('brokerId')}")


def read_broker(item: Object) -> BrokerRecord | None:
    """Return the record, or None for an object without a registered broker."""
    metadata, spec, status = item["metadata"], item.get("spec", {}), item.get("status", {})
    place = f"Broker {metadata.get('namespace')}/{metadata.get('name')}"
    try:
        if int(status.get("brokerEpoch", NO_EPOCH)) == NO_EPOCH:
            return None
        endpoints, storage = status["endpoints"], status.get("storage", {})
        return BrokerRecord(
            pool=spec["pool"],
            broker_id=BrokerId(int(spec["brokerId"])),
            broker_epoch=BrokerEpoch(int(status["brokerEpoch"])),
            clean_since=BrokerEpoch(int(status["cleanSince"])),
            # Within `storage`, which every controller writes whole: one that does not know of it
            # leaves none behind, never a stale one.
            disk_since=BrokerEpoch(int(storage.get("diskSince", status["cleanSince"]))),
            controller_epoch=ControllerEpoch(int(status["controllerEpoch"])),
            state=BrokerControlState(status["state"]),
            incarnation=status["incarnation"],
            endpoints=Endpoints(
                endpoints["host"],
                int(endpoints["kafkaPort"]),
                int(endpoints["httpPort"]),
                endpoints["advertisedHttpUrl"],
                int(endpoints.get("replicationPort", 0)),
            ),
            rack=status.get("rack", ""),
            storage=StorageIdentity(
                storage.get("directoryId", ""),
                storage.get("claimUid", ""),
                storage.get("podUid", ""),
                storage.get("bootId", ""),
            ),
            cluster_id=status.get("clusterId", ""),
            producer_id_round=producer_id_round_of(item),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedObject(f"{place}: {type(error).__name__} {error}") from error


def producer_id_round_of(item: Object) -> int:
    """Return the round of a Broker object, also of an otherwise unreadable one (S5).

    It must never be lowered.
    """
    found = item.get("status", {}).get("producerIdRound", NO_ROUND)
    return found if isinstance(found, int) else NO_ROUND


def _broker_status(record: BrokerRecord) -> Object:
    endpoints, storage = record.endpoints, record.storage
    return {
        "state": record.state.value,
        "brokerEpoch": record.broker_epoch,
        "cleanSince": record.clean_since,
        "controllerEpoch": record.controller_epoch,
        "incarnation": record.incarnation,
        "endpoints": {
            "host": endpoints.host,
            "kafkaPort": endpoints.kafka_port,
            "httpPort": endpoints.http_port,
            "advertisedHttpUrl": endpoints.advertised_http_url,
            **_replication_port(endpoints),
        },
        "rack": record.rack,
        "storage": {
            "directoryId": storage.directory_id,
            "claimUid": storage.claim_uid,
            "podUid": storage.pod_uid,
            "bootId": storage.boot_id,
            "diskSince": record.disk_since,
        },
        "clusterId": record.cluster_id,
        "producerIdRound": record.producer_id_round,
    }


def _replication_port(endpoints: Endpoints) -> Object:
    """Return the field of a broker with TLS only: others' objects stay as they are."""
    return {"replicationPort": endpoints.replication_port} if endpoints.replication_port else {}
