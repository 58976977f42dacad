"""Define what an experiment needs of its cluster, be it local processes or pods.

All times are Unix milliseconds of this machine's clock, which the workload shares.
"""

from collections.abc import Callable
from typing import Protocol

from tidemark_client.metadata import PartitionView, TopicView

from tidemark_chaos.environments.prometheus import AuditResponse
from tidemark_chaos.faults.fault import Fault, FaultKind
from tidemark_chaos.verification import VerifyReport
from tidemark_chaos.workload_log import WorkloadLog

Notify = Callable[[str], None]  # progress: one short phrase


# After these the same broker may lead on: nobody waits for another one.
LEADER_MAY_STAY = frozenset(
    {FaultKind.SHORT_FREEZE, FaultKind.CUT_FOLLOWER, FaultKind.CUT_FROM_PEERS}
)


class Environment(Protocol):
    runtime: str  # "processes" | "kubernetes"
    opening: str
    closing: str
    default_kinds: tuple[FaultKind, ...]
    possible_kinds: frozenset[FaultKind]

    async def set_up(self, tell: Notify) -> None:
        """Set up the cluster; return when the topic's partitions are led and fully in sync."""

    async def start_workload(self) -> None: ...

    async def topic(self) -> TopicView | None:
        """Return the controller's durable view now; None while it cannot be read."""

    async def strike(self, kind: FaultKind, target: PartitionView) -> Fault:
        """Inject a fault at the partition's leader, unless the kind says otherwise."""

    async def follow_up(self, kind: FaultKind, target: PartitionView) -> Fault | None:
        """Inject the second fault of a kind that has one, while the cluster recovers."""

    async def worn_brokers(self) -> frozenset[int]:
        """Return the brokers whose next restart would be delayed because they restarted before."""

    async def renew(self, broker_id: int) -> None:
        """Restart a worn broker cleanly, so its next restart is prompt again."""

    async def workload_log(self) -> WorkloadLog:
        """Return the workload's events so far."""

    async def stop_workload(self) -> None:
        """Stop the workload; return when all records in flight have an outcome."""

    async def verify(self) -> VerifyReport: ...

    async def audit(self) -> AuditResponse | str:
        """Audit the run so far from Prometheus's data; a sentence says why there is no audit."""

    async def tear_down(self) -> None:
        """Stop what was started here; never raise for what is gone already."""
