"""Define what other parts of a broker learn of its partitions."""

from collections.abc import Callable
from dataclasses import dataclass

from tidemark_protocol.controller_messages import IsrProposal

from tidemark_broker.replication.partition import Partition


def nothing(*_: object) -> None:
    return None


@dataclass(slots=True)
class PartitionObserver:
    """The receivers of events of local partitions; set before logs are attached."""

    submit: Callable[[IsrProposal], None] = nothing
    appended: Callable[[Partition], None] = nothing
    watermark_moved: Callable[[Partition], None] = nothing
    on_log_start: Callable[[Partition], None] = nothing
    role_changed: Callable[[Partition], None] = nothing
    flush_needed: Callable[[Partition], None] = nothing
    truncated: Callable[[Partition], None] = nothing
    roles_applied: Callable[[], None] = nothing  # of some replicas: `pop_touched` says which
    topics_deleted: Callable[[tuple[str, ...]], None] = nothing
    storage_failed: Callable[[Exception], None] = nothing
