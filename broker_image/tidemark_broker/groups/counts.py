"""What happened in groups, and how many there are: for metrics alone, nothing is decided by it."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class GroupCounts:
    """Since the process began, by all coordinators of a broker together."""

    completed_rebalances: int = 0  # generations whose members were all told
    committed_offsets: int = 0


@dataclass(slots=True)
class GroupCensus:
    """As of now."""

    groups: Counter[str] = field(default_factory=Counter)  # by state
    members: int = 0
    offsets: int = 0
