"""Say when a fault was injected, and what it was."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """Hold the Unix time in ms of a fault, and its words for people."""

    t_ms: float
    words: str
