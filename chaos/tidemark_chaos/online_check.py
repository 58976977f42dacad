"""Check acknowledgements while the workload runs, as Redpanda's chaos suite does. Pure.

An acknowledged offset is above every offset that was acknowledged before the write began, and no
offset is assigned twice. It keeps only what writes that are still under way can need.
"""

from bisect import bisect_left
from dataclasses import dataclass, field

from tidemark_chaos.workload_log import ACKNOWLEDGED, Event, Produced, Violation

KEPT_MS = 120_000.0  # longer than a record may be under way


@dataclass(slots=True)
class _Partition:
    times_ms: list[float] = field(default_factory=list)  # of acknowledgements
    highest: list[int] = field(default_factory=list)  # the highest offset up to each of them
    offsets: dict[int, int] = field(default_factory=dict)  # offset -> sequence


class OnlineCheck:
    def __init__(self) -> None:
        self.violations: list[str] = []
        self._partitions: dict[int, _Partition] = {}

    def on_event(self, event: Event) -> None:
        if isinstance(event, Violation):
            self.violations.append(f"partition {event.partition}: {event.text}")
        elif isinstance(event, Produced) and event.outcome == ACKNOWLEDGED and event.is_promised:
            self._on_acknowledged(event)

    def _on_acknowledged(self, event: Produced) -> None:
        known = self._partitions.setdefault(event.partition, _Partition())
        earlier = known.offsets.setdefault(event.offset, event.sequence)
        if earlier != event.sequence:
            self.violations.append(
                f"partition {event.partition}: offset {event.offset} acknowledged to record"
                f" {earlier} and to record {event.sequence}"
            )
        place = bisect_left(known.times_ms, event.t_ms - event.latency_ms)
        if place and known.highest[place - 1] >= event.offset:
            self.violations.append(
                f"partition {event.partition}: record {event.sequence} acknowledged at offset"
                f" {event.offset}, when {known.highest[place - 1]} was acknowledged before it began"
            )
        last = known.highest[-1] if known.highest else -1
        known.times_ms.append(max(event.t_ms, known.times_ms[-1] if known.times_ms else 0.0))
        known.highest.append(max(last, event.offset))
        if len(known.times_ms) % 4096 == 0:
            self._forget_before(known, event.t_ms - KEPT_MS)

    @staticmethod
    def _forget_before(known: _Partition, t_ms: float) -> None:
        place = bisect_left(known.times_ms, t_ms)
        if place == 0:
            return
        floor = known.highest[place - 1]
        del known.times_ms[: place - 1], known.highest[: place - 1]
        known.offsets = {
            offset: sequence for offset, sequence in known.offsets.items() if offset >= floor
        }
