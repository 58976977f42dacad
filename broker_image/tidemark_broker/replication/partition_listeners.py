"""Define what other parts of a broker learn of its partitions."""

from collections.abc import Callable
from dataclasses import dataclass

from tidemark_protocol.controller_messages import InSyncProposal

from tidemark_broker.replication.partition import HostedReplica


def nothing(*_: object) -> None:
    return None


@dataclass(slots=True)
class PartitionListeners:
    """The receivers of events of local partitions; set before logs are attached."""

    propose: Callable[[InSyncProposal], None] = nothing
    appended: Callable[[HostedReplica], None] = nothing
    watermark_moved: Callable[[HostedReplica], None] = nothing
    log_start_raised: Callable[[HostedReplica], None] = nothing
    role_changed: Callable[[HostedReplica], None] = nothing
    flush_needed: Callable[[HostedReplica], None] = nothing
    truncated: Callable[[HostedReplica], None] = nothing
    roles_applied: Callable[[], None] = nothing  # of some replicas: `take_touched` says which
    metadata_applied: Callable[[], None] = nothing
    metadata_came: Callable[[], None] = nothing  # for the first time in this life
    topics_deleted: Callable[[tuple[str, ...]], None] = nothing
    storage_failed: Callable[[Exception], None] = nothing
