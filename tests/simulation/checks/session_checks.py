"""Who is silent for less than a session is not fenced, whatever befalls controllers (S18).

A broker that is fenced in vain comes back and nothing is lost, so no invariant speaks of it. It is
judged in runs whose faults reach controllers alone, or keep no broker silent for a whole session:
there every broker could have been heard, also where its probes are refused (S19).
"""

from collections import Counter
from collections.abc import Collection

from tidemark_operator.api.broker import BrokerControlState, BrokerRecord
from tidemark_operator.controller.core.settings import ControllerSettings
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import PartitionState

from tests.simulation.checks.violations import Violation

# Of work: nothing fails.
OF_WORK = frozenset({"make_bulk", "starve_controller"})
NOT_OF_BROKERS = OF_WORK | frozenset(
    {
        "freeze_controller",
        "kill_controller",
        "deafen_controller",
        "deafen_controller_for_long",
        "reject_probes",
        "impersonate_broker",
        "end_certificate",
        "stall_after_silence",
    }
)

SESSION_US = ControllerSettings().session_timeout_ms * 1000
# For longer than a session, unless the healing comes first.
DEAFENING = frozenset({"deafen_controller", "deafen_controller_for_long"})


def check_not_in_vain(
    before: BrokerRecord | None,
    after: BrokerRecord,
    coverage: Counter[str],
    *,
    is_held_down: bool,
    healed_for_us: int | None = None,
) -> None:
    """`coverage`: of the world, which counts its faults by kind. `is_held_down`: the broker was
    killed to see when others lead, which is no fault of a run. `healed_for_us`: for a session from
    then on a controller that heard again just before it would have found itself deaf may hear some
    brokers too late. Raises Violation."""
    if before is None or before.state is not BrokerControlState.ACTIVE or is_held_down:
        return
    kinds = kinds_so_far(coverage)
    has_just_healed = healed_for_us is not None and healed_for_us < SESSION_US
    if has_just_healed and not DEAFENING.isdisjoint(kinds):
        return
    if after.state is BrokerControlState.FENCED and kinds <= NOT_OF_BROKERS:
        befell = ", ".join(sorted(kinds)) or "nothing"
        raise Violation("sessions", f"broker {after.broker_id} was fenced, and all was: {befell}")


def check_one_event(
    old: PartitionState, new: PartitionState, coverage: Counter[str], *, up: Collection[BrokerId]
) -> None:
    """Where all that failed fell silent in one event they expire together: nobody of these is made
    leader after another, and nobody waits for one. `up`: whose machines are. Raises Violation."""
    if kinds_so_far(coverage) != {"lose_two_and_controller"}:
        return
    is_silent = new.has_leader and new.leader not in up
    is_waiting = old.has_leader and not new.has_leader and not new.in_sync_ids.isdisjoint(up)
    if new.leader_epoch > old.leader_epoch and (is_silent or is_waiting):
        raise Violation("sessions", f"up are brokers {sorted(up)}, and {old} became {new}")


def kinds_so_far(coverage: Counter[str]) -> set[str]:
    """Of faults."""
    return {key.removeprefix("fault ") for key in coverage if key.startswith("fault ")}
