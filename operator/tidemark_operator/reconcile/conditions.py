"""Conditions of a status, as metav1.Condition. Pure: the time comes in as text."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MAX_MESSAGE_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Condition:
    type: str
    is_true: bool
    reason: str
    message: str


def conditions_json(
    wanted: Iterable[Condition],
    stored: Iterable[dict[str, Any]],
    *,
    generation: int,
    now: str,
) -> list[dict[str, Any]]:
    """`lastTransitionTime` moves only when that condition's status flips; conditions that are no
    longer wanted go."""
    before = {condition["type"]: condition for condition in stored}
    result = []
    for condition in wanted:
        status = "True" if condition.is_true else "False"
        old = before.get(condition.type, {})
        flipped = old.get("status") != status
        result.append(
            {
                "type": condition.type,
                "status": status,
                "reason": condition.reason,
                "message": condition.message[:MAX_MESSAGE_CHARACTERS],
                "lastTransitionTime": now if flipped else old["lastTransitionTime"],
                "observedGeneration": generation,
            }
        )
    return result
