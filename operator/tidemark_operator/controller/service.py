"""The controller as the rest of the operator and the brokers see it (shell).

STUB OF THE SIGNATURES: bodies follow.
"""

from collections.abc import Callable
from typing import Protocol

from tidemark_protocol.controller_messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    RegisterRequest,
    RegisterResponse,
)
from tidemark_protocol.ids import BrokerId, ControllerEpoch, TopicId
from tidemark_protocol.partition_state import TopicState

from tidemark_operator.controller.settings import ControllerSettings
from tidemark_operator.controller.views import BrokerView, Change, TopicView
from tidemark_operator.stores.object_store import ObjectStore

__all__ = ["BrokerView", "Change", "ControllerService", "ControllerSettings", "TopicView"]


class Clock(Protocol):
    def now_ms(self) -> int:
        """Monotonic."""
        ...


class Probe(Protocol):
    """probe.HttpProbe in production."""


class NotLeading(Exception):
    """This controller does not lead (any more): ask the leading one."""


class SliceMissing(Exception):
    """A topic id that once had slices lacks some (S12): restore them, or delete the topic."""


class TopicUnknown(Exception):
    """No slices of that topic id here: create_topic first."""


class ControllerService:
    def __init__(
        self,
        store: ObjectStore,
        *,
        settings: ControllerSettings,
        clock: Clock,
        probe: Probe,
        on_change: Callable[[Change], None],
    ) -> None: ...

    async def take_over(self, controller_epoch: ControllerEpoch) -> None:
        """Reads Broker and PartitionSlice objects by quorum list, then decides. Starts the ticks.

        Raises StoreError when the store cannot be read."""
        raise NotImplementedError

    async def step_down(self) -> None:
        """No more decisions; every open poll is answered NOT_CONTROLLER; state is forgotten."""
        raise NotImplementedError

    @property
    def is_leading(self) -> bool:
        raise NotImplementedError

    def set_leader_address(self, address: str) -> None:
        """host:port that NOT_CONTROLLER answers name while this one stands by ("": unknown)."""
        raise NotImplementedError

    # Brokers' requests. They never raise for what a broker sent; errors are in the answers.

    async def register(self, request: RegisterRequest) -> RegisterResponse:
        raise NotImplementedError

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Long poll. Cancel it when its connection broke: that closes the poll and suspects."""
        raise NotImplementedError

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        raise NotImplementedError

    # Reconcilers' calls. All raise NotLeading; writes raise StoreError (retry later).

    def highest_broker_controller_epoch(self) -> ControllerEpoch:
        """Highest controller epoch that any broker reported to this process (S16); -1: none."""
        raise NotImplementedError

    def brokers(self, pool: str) -> tuple[BrokerView, ...]:
        raise NotImplementedError

    def topic(self, pool: str, topic_id: TopicId) -> TopicView | None:
        raise NotImplementedError

    def topics(self, pool: str) -> tuple[TopicView, ...]:
        raise NotImplementedError

    def retained_topic(self, pool: str, topic: str) -> TopicId | None:
        """The topic id that a Topic of this topicName must adopt (pass it to create_topic)."""
        raise NotImplementedError

    async def create_topic(
        self,
        pool: str,
        topic: TopicState,
        assignments: tuple[tuple[BrokerId, ...], ...],
        *,
        object_name: str = "",
        deletion_policy: str = "Retain",
        had_slices: bool = False,
    ) -> None:
        """Makes the slices, or adopts retained ones of this topic id. Idempotent.

        `object_name`: metadata.name of the Topic (slices are named after it), default its
        topicName. `had_slices`: the Topic's status says that slices were made once; then missing
        ones raise SliceMissing (S12), also without it when a broker holds replicas of the id.
        """
        raise NotImplementedError

    async def update_topic(
        self, pool: str, topic: TopicState, *, deletion_policy: str = "Retain"
    ) -> None:
        """New config (min ISR by compare-and-set with the eligible leaders, S6). Idempotent."""
        raise NotImplementedError

    async def add_partitions(
        self, pool: str, topic_id: TopicId, assignments: tuple[tuple[BrokerId, ...], ...]
    ) -> None:
        """`assignments` of the new partitions only."""
        raise NotImplementedError

    async def delete_topic(self, pool: str, topic_id: TopicId, *, retain: bool) -> None:
        """Brokers stop serving it; slices are deleted, or kept marked retained. Idempotent."""
        raise NotImplementedError

    def suspect(self, pool: str, broker_id: BrokerId, reason: str) -> None:
        """Pod deleted or terminated: probe now, fence if refused. Never waits."""
        raise NotImplementedError
