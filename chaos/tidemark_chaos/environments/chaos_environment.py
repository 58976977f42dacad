"""Define what a chaos run needs of its cluster and its faults, be they processes or pods."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from tidemark_client.cluster_status import ClusterStatus

from tidemark_chaos.schedule import PlannedFault
from tidemark_chaos.verification import VerifyReport
from tidemark_chaos.workload_log import Event

Notify = Callable[[str], None]  # progress: one short phrase
Tell = Callable[[float, str], None]  # Unix time in ms, and what was done


class ChaosEnvironment(Protocol):
    opening: str
    keeps_data: bool  # after the run: a failed one is examined by its data

    async def prepare(self) -> None:
        """Delete what an earlier experiment left in the directory."""

    async def set_up(self, tell: Notify) -> None:
        """Set up the cluster; return when the topic's partitions are led and fully in sync."""

    async def start_workload(self) -> None: ...

    async def status(self) -> ClusterStatus | None:
        """Return the present status; None while it cannot be read."""

    async def new_events(self) -> list[Event]:
        """Return what the workload wrote since the last call."""

    def check_workload(self) -> None:
        """Check that the workload still runs. Raises CommandFailed."""

    async def rest(self, brokers: tuple[int, ...]) -> bool:
        """Wait until these brokers restart without a delay; return whether that took time."""

    def note_struck(self, brokers: tuple[int, ...]) -> None: ...

    async def until(self, is_so: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until a condition holds. Raises CommandFailed."""

    async def stop_workload(self) -> None:
        """Stop the workload; return when all records in flight have an outcome."""

    async def verify(self) -> VerifyReport: ...

    async def tear_down(self) -> None:
        """Stop what was started here; never raise for what is gone already."""


class Faults(Protocol):
    async def strike(
        self, fault: PlannedFault, brokers: tuple[int, ...], on_begin: Tell, on_heal: Tell
    ) -> None:
        """Do a fault to the end, its healing included. Raises CommandFailed."""

    def heal(self) -> list[str]:
        """End what still lasts, and return whose faults these were."""
        ...
