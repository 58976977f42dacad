"""L1 where nothing else is wrong: one of three ends of a leader, and how long its followers take.

Nothing of the faults is left that would make a bound longer: the healing ended what slowed links,
disks and the API server down and set every clock's rate right, a wall clock that jumped counts for
no session and no Lease, and sessions that a new controller granted began before this does.
"""

from random import Random

from tidemark_operator.controller.core.settings import ControllerSettings
from tidemark_operator.store.lease import LeaseSettings

from tests.simulation.checks.coverage_rows import FROZEN, KILLED, KILLED_WITH_CONTROLLER
from tests.simulation.checks.liveness_checks import KILLED_MS
from tests.simulation.engine.broker_process import BrokerSlot
from tests.simulation.engine.simulated_cluster import Cluster

ENDS = (FROZEN, KILLED_WITH_CONTROLLER, KILLED)


def end_of(seed: int) -> str:
    """Drawn from a stream of its own: it changes nothing of what comes before it."""
    return Random(f"end of {seed}").choice(ENDS)


def bound_ms(end: str, settings: ControllerSettings, lease: LeaseSettings) -> int:
    """Until all is led again, as invariants.md promises it."""
    if end == FROZEN:
        return settings.session_timeout_ms + KILLED_MS
    if end == KILLED_WITH_CONTROLLER:
        return KILLED_MS + lease.duration_ms + settings.session_timeout_ms
    return KILLED_MS


def bring_about(end: str, cluster: Cluster, slot: BrokerSlot) -> None:
    """Who ends stays away. A frozen one counts as held down too: it is fenced for this, and for
    nothing that befell it in the run (S18)."""
    process = slot.process
    assert process is not None
    slot.is_held_down = True
    if end == FROZEN:
        process.freeze(for_good=True)
        return
    controller = cluster.leading_controller if end == KILLED_WITH_CONTROLLER else None
    if controller is not None and controller.process is not None:
        controller.is_held_down = True
        controller.process.kill()
    process.kill()
