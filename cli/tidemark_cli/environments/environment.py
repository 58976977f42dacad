"""The seam between the demo's story and where it happens: processes of this machine, or pods.

All times are Unix milliseconds of this machine's clock, which the load generator shares.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tidemark_cli.environments.scraper import AuditAnswer
from tidemark_cli.load_events import LoadLedger
from tidemark_cli.metadata import PartitionView, TopicView
from tidemark_cli.verify import VerifyReport

TOPIC = "orders"
Tell = Callable[[str], None]  # progress: one short phrase


class RoundKind(StrEnum):
    KILL = "kill -9"
    KILL_TWICE = "kill -9 twice"
    FORCED_DELETE = "forced delete"
    STOP = "SIGTERM"
    FREEZE = "freeze"  # until others lead: longer than a session
    SHORT_FREEZE = "short freeze"  # shorter than a session
    SET_OF_ONE = "in-sync set of one"  # then that one dies, and comes back
    ROLLING = "rolling restart"
    CUT_FOLLOWER = "cut follower"
    CUT_LEADER = "cut leader"
    CUT_FROM_CONTROLLER = "leader cut from the controller"
    CUT_FROM_PEERS = "leader cut from its peers"
    OPERATOR = "operator kill"
    OPERATOR_AND_LEADER = "operator and leader kill"


# After these the same broker may lead on: nobody waits for another one.
LEADER_MAY_STAY = frozenset(
    {RoundKind.SHORT_FREEZE, RoundKind.CUT_FOLLOWER, RoundKind.CUT_FROM_PEERS}
)


@dataclass(frozen=True, slots=True)
class Blow:
    """When it fell and what it was, in words for the story."""

    t_ms: float
    words: str


class Environment(Protocol):
    runtime: str  # "processes" | "kubernetes"
    opening: str
    closing: str
    default_kinds: tuple[RoundKind, ...]
    possible_kinds: frozenset[RoundKind]

    async def set_up(self, tell: Tell) -> None:
        """Returns when the topic's partitions are led and fully in sync."""

    async def start_load(self) -> None: ...

    async def topic(self) -> TopicView | None:
        """The controller's durable view, now; None while it cannot be had."""

    async def strike(self, kind: RoundKind, target: PartitionView) -> Blow:
        """At the partition's leader, unless the kind says something else."""

    async def follow_up(self, kind: RoundKind, target: PartitionView) -> Blow | None:
        """What else belongs to this kind of blow, while the cluster recovers."""

    async def worn_brokers(self) -> frozenset[int]:
        """Those whose next restart would be held back because they were restarted before."""

    async def renew(self, broker_id: int) -> None:
        """Makes a worn broker's next restart prompt again, gently."""

    async def ledger(self) -> LoadLedger:
        """The load's events so far."""

    async def stop_load(self) -> None:
        """Returns when all records in flight have an outcome."""

    async def verify(self) -> VerifyReport: ...

    async def audit(self) -> AuditAnswer | str:
        """Of the run so far, from what Prometheus scraped; a sentence where there is none."""

    async def tear_down(self) -> None:
        """Stops what was started here; never raises for what is gone already."""
