"""Whom nothing keeps from its controller is not fenced, whatever befalls controllers (S18).

A broker that is fenced in vain comes back and nothing is lost, so no invariant speaks of it. It is
judged in runs whose faults reach controllers alone: there every broker could have been heard.
"""

from collections import Counter

from tidemark_operator.controller.broker_record import BrokerLifeState, BrokerRecord

from tests.simulator.violations import Violation

OF_CONTROLLERS = frozenset({"freeze_controller", "kill_controller", "deafen_controller"})


def check_not_in_vain(
    before: BrokerRecord | None,
    after: BrokerRecord,
    coverage: Counter[str],
    *,
    is_held_down: bool,
) -> None:
    """`coverage`: of the world, which counts its faults by kind. `is_held_down`: the broker was
    killed to see when others lead, which is no fault of a run. Raises Violation."""
    if before is None or before.state is not BrokerLifeState.ACTIVE or is_held_down:
        return
    kinds = {key.removeprefix("fault ") for key in coverage if key.startswith("fault ")}
    if after.state is BrokerLifeState.FENCED and kinds <= OF_CONTROLLERS:
        befell = ", ".join(sorted(kinds)) or "nothing"
        raise Violation("sessions", f"broker {after.broker_id} was fenced, and all was: {befell}")
