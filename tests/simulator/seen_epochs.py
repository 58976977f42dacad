"""What controllers tell brokers: to none an older word counts (I14, S25), and of the producer ids
that they give out none is given twice (I8, S5).
"""

from typing import Any

from tidemark_protocol.ids import BrokerId

from tests.simulator.violations import Violation


class SeenEpochs:
    """Of each process, as last looked at."""

    def __init__(self) -> None:
        self._own: dict[int, tuple[int, int]] = {}  # of controller and broker
        self._images: dict[int, int] = {}  # of that controller
        self._others: dict[int, dict[BrokerId, int]] = {}

    def check(self, broker_id: BrokerId, process: int, partitions: Any) -> None:
        """Raises Violation."""
        metadata, who = partitions.metadata, f"broker {broker_id}"
        epochs = (metadata.controller_epoch, partitions.broker_epoch)
        known = self._own.get(process, (-1, -1))
        self._own[process] = epochs
        if epochs[0] < known[0]:
            raise Violation("I14", f"{who}: controller epoch {known[0]} became {epochs[0]}")
        if epochs[1] != known[1] != -1:
            raise Violation("I14", f"{who}: epoch became {epochs[1]}")
        image = self._images.get(process, -1) if epochs[0] == known[0] else -1
        self._images[process] = metadata.image_version
        if metadata.image_version < image:
            raise Violation("I14", f"{who}: image {image} became {metadata.image_version}")
        self._check_others(who, process, metadata)

    def _check_others(self, who: str, process: int, metadata: Any) -> None:
        seen = self._others.setdefault(process, {})
        for other, state in metadata.brokers.items():
            if state.broker_epoch < seen.get(other, -1):
                raise Violation(
                    "I14",
                    f"{who}: epoch {seen[other]} of broker {other} became {state.broker_epoch}",
                )
            seen[other] = state.broker_epoch


class GivenIds:
    """To producers, by all brokers."""

    def __init__(self) -> None:
        self._given: dict[int, None] = {}

    def taken(self, producer_id: int) -> Violation | None:
        if producer_id in self._given:
            return Violation("I8", f"producer id {producer_id} is given a second time")
        self._given[producer_id] = None
        return None
