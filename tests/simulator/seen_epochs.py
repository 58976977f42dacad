"""What controllers tell brokers: to none an older word counts (I14, S25), and of the producer ids
that they give out none is given twice (I8, S5).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tidemark_protocol.ids import BrokerId

from tests.simulator.violations import Violation


class _Seen(NamedTuple):
    controller_epoch: int
    broker_epoch: int
    image_version: int  # of that controller
    others: Mapping[BrokerId, Any]  # never changed, another one takes its place


class SeenEpochs:
    """Of each process, as last looked at."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self._others: dict[int, dict[BrokerId, int]] = {}  # the highest ones

    def check(self, broker_id: BrokerId, process: int, partitions: Any) -> None:
        """Raises Violation."""
        metadata = partitions.metadata
        seen = _Seen(
            metadata.controller_epoch,
            partitions.broker_epoch,
            metadata.image_version,
            metadata.brokers,
        )
        known = self._seen.get(process)
        self._seen[process] = seen
        if known is None:
            self._check_others(f"broker {broker_id}", process, seen.others)
        elif known[:3] != seen[:3] or known.others is not seen.others:
            self._check_follows(f"broker {broker_id}", known, seen)
            self._check_others(f"broker {broker_id}", process, seen.others)

    @staticmethod
    def _check_follows(who: str, known: _Seen, seen: _Seen) -> None:
        before, after = known.controller_epoch, seen.controller_epoch
        if after < before:
            raise Violation("I14", f"{who}: controller epoch {before} became {after}")
        if seen.broker_epoch != known.broker_epoch != -1:
            raise Violation("I14", f"{who}: epoch became {seen.broker_epoch}")
        if after == before and seen.image_version < known.image_version:
            raise Violation(
                "I14", f"{who}: image {known.image_version} became {seen.image_version}"
            )

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
