"""Name a fault and the kinds of rounds that have one."""

from dataclasses import dataclass
from enum import StrEnum

TOPIC = "orders"


class FaultKind(StrEnum):
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


@dataclass(frozen=True, slots=True)
class Fault:
    """Hold when a fault was injected and what it was, in words for the demo."""

    t_ms: float
    words: str
