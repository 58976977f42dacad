"""Define what reconcilers and status pages see of the controller: frozen, durable state only.

`ElectionCounts` counts assigned leaders by kind, for metrics only.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from tidemark_protocol.controller_messages import ClientQuota, Endpoints, ListenerAddress
from tidemark_protocol.ids import BrokerEpoch, BrokerId, TopicId
from tidemark_protocol.partition_state import PartitionState, TopicState

from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.api.unclean_election import UncleanElection
from tidemark_operator.controller.core.eligibility import Replica


class ElectionKind(Enum):
    CLEAN = "clean"
    UNCLEAN = "unclean"  # by a last resort
    PLANNED = "planned"  # the former leader was alive, or is the one that was restarted in order


class ElectionCounts:
    def __init__(self) -> None:
        self._counts: dict[TopicId, dict[int, dict[ElectionKind, int]]] = {}

    def of(self, replica: Replica) -> dict[ElectionKind, int]:
        topic_id, partition = replica
        counted = self._counts.get(topic_id, {}).get(partition)
        return counted or dict.fromkeys(ElectionKind, 0)

    def note(self, replica: Replica, kind: ElectionKind) -> None:
        topic_id, partition = replica
        of_topic = self._counts.setdefault(topic_id, {})
        of_topic.setdefault(partition, dict.fromkeys(ElectionKind, 0))[kind] += 1

    def forget(self, topic_id: TopicId) -> None:
        self._counts.pop(topic_id, None)


@dataclass(frozen=True, slots=True)
class StateChange:
    """A change that a reconciler may handle.

    `name` is the broker id as text, or metadata.name of the Topic object.
    """

    kind: Literal["broker", "topic"]
    pool: str
    name: str


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """The settings of the BrokerPool that are pushed to brokers; no record depends on them."""

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
    planned_restarts: int = 0  # that began under this controller
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
    choices: tuple[LeaderChoice, ...] = ()  # leaders that a human named, not elected yet
    recoveries: tuple[UncleanElection, ...] = ()
    slice_names: tuple[str, ...] = ()  # object names of those that are known
    elections: ElectionCounts = field(default_factory=ElectionCounts, compare=False)  # to look at
