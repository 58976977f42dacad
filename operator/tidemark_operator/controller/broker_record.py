"""What is durably known of one broker (the Broker object), as a value.

`clean_since` decides which ISR and eligible entries of this broker still prove something: an entry
(id, epoch) is valid iff its epoch >= clean_since (S2). It rises in the same compare-and-set as the
broker epoch, whenever a start was not proved clean. For topics with flush Always `disk_since`
decides in its place: it rises only where the disk is not proved to be the very one that synced what
these entries stand for (S14).
"""

from dataclasses import dataclass
from enum import Enum

from tidemark_protocol.controller_messages import Endpoints, StorageIdentity
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch

from tidemark_operator.controller.producer_id_rounds import NO_ROUND


class BrokerLifeState(Enum):
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
    state: BrokerLifeState
    incarnation: str
    endpoints: Endpoints
    rack: str
    storage: StorageIdentity
    cluster_id: str
    producer_id_round: int = NO_ROUND  # the last one used, or seen on its disk (S5)

    @property
    def is_live(self) -> bool:
        """May follow, count for an ISR and, unless draining, lead."""
        return self.state in (BrokerLifeState.ACTIVE, BrokerLifeState.DRAINING)

    @property
    def is_stopping(self) -> bool:
        return self.state is BrokerLifeState.DRAINING
