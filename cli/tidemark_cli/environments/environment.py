"""The seam between the demo's story and where it happens: processes of this machine, or pods.

All times are Unix milliseconds of this machine's clock, which the load generator shares.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tidemark_cli.load_events import LoadLedger
from tidemark_cli.metadata import TopicView
from tidemark_cli.verify import VerifyReport

TOPIC = "orders"
Tell = Callable[[str], None]  # progress: one short phrase


class RoundKind(StrEnum):
    KILL = "kill -9"
    KILL_TWICE = "kill -9 twice"
    FORCED_DELETE = "forced delete"
    STOP = "SIGTERM"
    OPERATOR = "operator kill"
    OPERATOR_AND_LEADER = "operator and leader kill"


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

    async def strike(self, kind: RoundKind, broker_id: int) -> Blow: ...

    async def follow_up(self, kind: RoundKind, broker_id: int) -> Blow | None:
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

    async def tear_down(self) -> None:
        """Stops what was started here; never raises for what is gone already."""
