"""What reconcilers and status pages see of the controller: frozen values, durable state only."""

from dataclasses import dataclass, field
from typing import Literal

from tidemark_protocol.controller_messages import ClientQuota, Endpoints, ListenerAddress
from tidemark_protocol.ids import BrokerEpoch, BrokerId
from tidemark_protocol.partition_state import PartitionState, TopicState

from tidemark_operator.controller.election_counts import ElectionCounts
from tidemark_operator.controller.last_resorts import Choice
from tidemark_operator.controller.recoveries import Recovery


@dataclass(frozen=True, slots=True)
class Change:
    """Something a reconciler may want to look at. `name`: the broker id as
    text, or metadata.name of the Topic object."""

    kind: Literal["broker", "topic"]
    pool: str
    name: str


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """What the BrokerPool says and brokers are told: of no consequence for any record."""

    move_bytes_per_second: int = 0  # for replicas that are being added, per broker; 0: unlimited
    quotas: tuple[ClientQuota, ...] | None = None  # None: not read yet
    addresses: tuple[ListenerAddress, ...] | None = None


@dataclass(frozen=True, slots=True)
class BrokerView:
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    state: str  # Starting | Active | Fenced | Draining | Gone
    endpoints: Endpoints
    rack: str
    incarnation: str
    is_planned_restart: bool = False  # stopped in order, and not in sync everywhere again yet
    clock_skew_ms: int | None = None  # ahead of the controller's; None: not known

    @property
    def is_active(self) -> bool:
        return self.state == "Active"


@dataclass(frozen=True, slots=True)
class TopicView:
    topic: TopicState
    partitions: tuple[PartitionState, ...]  # in order; those of unreadable slices are left out
    object_name: str  # metadata.name of its Topic
    deletion_policy: str  # Retain | Delete, as the slices hold it
    is_retained: bool  # kept after deletion of its Topic, not served
    missing_slices: tuple[str, ...] = ()  # object names that should exist and do not (S12)
    notices: tuple[str, ...] = ()  # sentences for a condition, e.g. an election by S14
    choices: tuple[Choice, ...] = ()  # leaders that a human named, not elected yet
    recoveries: tuple[Recovery, ...] = ()
    slice_names: tuple[str, ...] = ()  # object names of those that are known
    elections: ElectionCounts = field(default_factory=ElectionCounts, compare=False)  # to look at
