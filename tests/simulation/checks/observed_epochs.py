"""What controllers tell brokers: to none an older word counts (I14, S25), and of the producer ids
that they give out none is given twice (I8, S5).
"""

from collections.abc import Mapping
from typing import Any

from tidemark_protocol.ids import BrokerId

from tests.simulation.checks.violations import Violation

# Of controller, broker, that controller's image; other brokers as that says.
Seen = tuple[int, int, int, Mapping[BrokerId, Any]]


class SeenEpochs:
    """Of each process, as last looked at."""

    def __init__(self) -> None:
        self._seen: dict[int, Seen] = {}
        self._others: dict[int, dict[BrokerId, int]] = {}  # the highest ones

    def check(self, broker_id: BrokerId, process: int, partitions: Any) -> None:
        """Raises Violation."""
        metadata = partitions.metadata
        seen = (
            metadata.controller_epoch,
            partitions.broker_epoch,
            metadata.image_version,
            metadata.brokers,
        )
        known = self._seen.get(process)
        if known == seen:
            return
        self._seen[process] = seen
        who = f"broker {broker_id}"
        if known is not None:
            self._check_follows(who, known, seen)
            if seen[0] > known[0]:
                # It may have read before the last registrations of a deposed one (0083).
                self._others.pop(process, None)
        self._check_others(who, process, metadata.brokers)

    @staticmethod
    def _check_follows(who: str, known: Seen, seen: Seen) -> None:
        if seen[0] < known[0]:
            raise Violation("I14", f"{who}: controller epoch {known[0]} became {seen[0]}")
        if seen[1] != known[1] != -1:
            raise Violation("I14", f"{who}: epoch became {seen[1]}")
        if seen[0] == known[0] and seen[2] < known[2]:
            raise Violation("I14", f"{who}: image {known[2]} became {seen[2]}")

    def _check_others(self, who: str, process: int, others: Mapping[BrokerId, Any]) -> None:
        highest = self._others.setdefault(process, {})
        for other, state in others.items():
            if state.broker_epoch < highest.get(other, -1):
                raise Violation(
                    "I14",
                    f"{who}: epoch {highest[other]} of broker {other} became {state.broker_epoch}",
                )
            highest[other] = state.broker_epoch


class GivenIds:
    """To producers, by all brokers."""

    def __init__(self) -> None:
        self._given: dict[int, None] = {}

    def taken(self, producer_id: int) -> Violation | None:
        if producer_id in self._given:
            return Violation("I8", f"producer id {producer_id} is given a second time")
        self._given[producer_id] = None
        return None
