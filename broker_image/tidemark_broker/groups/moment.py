"""When something happens to a group, by both clocks that count."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moment:
    """`monotonic_ms`: what sessions and deadlines hang on; it does not go back, nor jump when
    somebody sets the wall clock. `wall_ms`: what is written to the log, where another broker reads
    it, and what offsets expire by."""

    monotonic_ms: int
    wall_ms: int
