"""What a run of an ordinary seed can count, all of it: a row each in the table, also with 0.

A fault that is drawn no more, a truncation that never happens: what a quiet simulator does not do
is seen only by whoever knows what it could. A count without a row fails `tests/simulation`.
"""

from collections.abc import Iterable

from tidemark_chaos.history_checker import REPORTED_ONLY, Kind, Outcome

from tests.simulation.checks.slice_checks import CHANGES, ELECTIONS
from tests.simulation.checks.violations import FLIPPED_EPOCH, SENT_AGAIN_LATE, SENT_TO_A_NEWCOMER
from tests.simulation.clients.desired_topics import RETAINED_MOVES
from tests.simulation.engine.disk_image import DATA_OUTCOMES
from tests.simulation.faults import fault_profiles, identity_faults, optional_faults
from tests.simulation.faults.fault_plan import KINDS

UNSEEN = "unseen"  # acknowledged, and read by nobody: let pass where a run has no last reads
WAIVED_AFTER_FLIPS = ("L1", "L3", "G4")
ACKNOWLEDGED = {0: "acknowledged, acks=0", 1: "acknowledged, acks=1", -1: "acknowledged, acks=all"}

REJECTED_BELOW_MIN_ISR = "acks=all refused below min ISR"
NEW_HISTORIES = "last resorts: histories begun anew"
KILLED = "L1 after a kill"
KILLED_WITH_CONTROLLER = "L1 after a kill with its controller"
FROZEN = "L1 after a freeze"
RESTARTED_TO_READ = "restarted by people to read a log again"
ACKNOWLEDGED_ANEW = "last resorts: acknowledged in the history after, acks=all"


def kept(promise: str) -> str:
    return f"{promise} kept"


def waived(promise: str) -> str:
    return f"{promise} not kept after flipped bits"


def ended_early(why: str) -> str:
    return f"ended early: {why}"


def _faults() -> Iterable[str]:
    profiles = (
        *fault_profiles.PROFILES.values(),
        *optional_faults.OPTIONAL_FAULTS.values(),
        *identity_faults.IDENTITY_PROFILES.values(),
    )
    kinds = dict.fromkeys([*KINDS, *(kind for profile in profiles for kind in profile)])
    yield from (f"fault {kind}" for kind in kinds)
    yield from (f"struck: {blow}" for blow in fault_profiles.BLOWS)
    yield from (f"stranded: {blow}" for blow in optional_faults.BLOWS)
    yield from (f"struck in a compaction: {blow}" for blow in optional_faults.COMPACTION_BLOWS)
    yield from (f"power loss: data {outcome}" for outcome in DATA_OUTCOMES)
    yield from (f"flipped at rest: {kind}" for kind in (*optional_faults.FILES, "nothing"))
    yield from ("power losses", "entries lost")
    yield from (f"impersonated: {how}" for how in identity_faults.HOW)
    yield identity_faults.REJECTED


def _clients() -> Iterable[str]:
    calls = (*(f"{Kind.SEND.value} {outcome.value}" for outcome in Outcome), "poll ok")
    yield from (f"client: {call}" for call in calls)
    yield from (f"partitions added later: {call}" for call in calls)
    yield from (f"history: {name}" for name in (*REPORTED_ONLY, UNSEEN))
    yield from ("group: assigned", "group: committed", "group: fetched")
    yield from ("group: fetched by a member of a former generation", "incremental fetches")


def _brokers() -> Iterable[str]:
    yield from ACKNOWLEDGED.values()
    yield REJECTED_BELOW_MIN_ISR
    yield from ("read from leader", "read from follower")
    yield from ("refused: unknown producer", "refused: expired producer")
    yield from ("duplicates found", "refused: out of order", "truncations", "records truncated")
    yield from ("compactions", "outdated records gone", "tombstones gone", "old records gone")
    yield from ("logs of several segments", "segments in the end", "logs that begin past 0")
    yield "producer ids given"
    yield from ELECTIONS
    yield from CHANGES
    yield RETAINED_MOVES


def _verdicts() -> Iterable[str]:
    yield "last resorts: committed records lost at most"
    yield "last resorts: a loss that is known was recorded"
    yield from (NEW_HISTORIES, ACKNOWLEDGED_ANEW)
    yield RESTARTED_TO_READ
    yield from map(kept, ("L1", "L3", "L4", "L5", "I21"))
    yield from map(kept, (KILLED, KILLED_WITH_CONTROLLER, FROZEN))
    yield from map(waived, WAIVED_AFTER_FLIPS)
    yield from map(ended_early, (FLIPPED_EPOCH, SENT_AGAIN_LATE, SENT_TO_A_NEWCOMER))


ROWS = tuple(sorted({*_faults(), *_clients(), *_brokers(), *_verdicts()}))
