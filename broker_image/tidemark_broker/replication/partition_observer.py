"""Define what other parts of a broker learn of its partitions, and call them in order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemark_protocol.controller_messages import CommittedTruncation, IsrProposal

from tidemark_broker.replication.partition import Partition, PartitionEvents


class PartitionObserver:
    """A part of the broker that observes local partitions; it overrides the events that it needs.

    Handlers must return soon and not raise.
    """

    def on_append(self, replica: Partition) -> None:
        """Handle an append as leader."""

    def on_high_watermark(self, replica: Partition) -> None:
        """Handle a high watermark or a log start that moved."""

    def on_role_change(self, replica: Partition) -> None:
        """Handle a new role or leader epoch."""

    def on_log_start(self, replica: Partition) -> None:
        """Handle a log start that this broker advanced."""

    def on_flush_needed(self, replica: Partition) -> None:
        """Handle a request that waits for this broker's disk."""

    def on_truncate(self, replica: Partition) -> None:
        """Handle a truncation: the replica's checkpoints were lowered, not synced."""

    def on_committed_truncation(self, cut: CommittedTruncation) -> None:
        """Handle a truncation of committed records."""

    def on_roles_applied(self) -> None:
        """Handle new roles of some replicas: `Roles.pop_touched` returns which."""

    def on_topics_deleted(self, topics: tuple[str, ...]) -> None:
        """Handle the deletion of topics whose names no other topic has."""

    def on_storage_failure(self, error: Exception) -> None:
        """Handle the failure of the storage; it is reported once."""


def nothing(*_: object) -> None:
    return None


@dataclass(frozen=True, slots=True)
class ManagerEvents:
    """The events of all replicas together."""

    roles_applied: Callable[[], None] = nothing
    topics_deleted: Callable[[tuple[str, ...]], None] = nothing
    storage_failure: Callable[[Exception], None] = nothing


def partition_events(
    observers: Sequence[PartitionObserver], submit: Callable[[IsrProposal], None]
) -> PartitionEvents:
    return PartitionEvents(
        submit=submit,
        append=_in_order(observers, PartitionObserver.on_append),
        high_watermark=_in_order(observers, PartitionObserver.on_high_watermark),
        log_start=_in_order(observers, PartitionObserver.on_log_start),
        role_change=_in_order(observers, PartitionObserver.on_role_change),
        flush_needed=_in_order(observers, PartitionObserver.on_flush_needed),
        truncate=_in_order(observers, PartitionObserver.on_truncate),
        committed_truncation=_in_order(observers, PartitionObserver.on_committed_truncation),
    )


def manager_events(observers: Sequence[PartitionObserver]) -> ManagerEvents:
    return ManagerEvents(
        roles_applied=_in_order(observers, PartitionObserver.on_roles_applied),
        topics_deleted=_in_order(observers, PartitionObserver.on_topics_deleted),
        storage_failure=_in_order(observers, PartitionObserver.on_storage_failure),
    )


def _in_order(
    observers: Sequence[PartitionObserver], event: Callable[..., None]
) -> Callable[..., None]:
    """Return a function that calls the observers which override the event, and no others."""
    name = event.__name__
    handlers: list[Callable[..., None]] = [
        getattr(observer, name)
        for observer in observers
        if getattr(type(observer), name) is not event
    ]
    if not handlers:
        return nothing
    if len(handlers) == 1:
        return handlers[0]

    def call(*arguments: object) -> None:
        for handler in handlers:
            handler(*arguments)

    return call
