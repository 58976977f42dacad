"""The seam between the demo's story and where it happens: processes of this machine, or pods.

All times are Unix milliseconds of this machine's clock, which the load generator shares.
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
        """Returns when the topic's partitions are led and fully in sync."""

    async def start_workload(self) -> None: ...

    async def topic(self) -> TopicView | None:
        """The controller's durable view, now; None while it cannot be had."""

    async def strike(self, kind: FaultKind, target: PartitionView) -> Fault:
        """At the partition's leader, unless the kind says something else."""

    async def follow_up(self, kind: FaultKind, target: PartitionView) -> Fault | None:
        """What else belongs to this kind of blow, while the cluster recovers."""

    async def worn_brokers(self) -> frozenset[int]:
        """Those whose next restart would be held back because they were restarted before."""

    async def renew(self, broker_id: int) -> None:
        """Makes a worn broker's next restart prompt again, gently."""

    async def ledger(self) -> WorkloadLog:
        """The load's events so far."""

    async def stop_workload(self) -> None:
        """Returns when all records in flight have an outcome."""

    async def verify(self) -> VerifyReport: ...

    async def audit(self) -> AuditResponse | str:
        """Of the run so far, from what Prometheus scraped; a sentence where there is none."""

    async def tear_down(self) -> None:
        """Stops what was started here; never raises for what is gone already."""
