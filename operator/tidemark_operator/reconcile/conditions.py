"""Build conditions of a status, as metav1.Condition. The time comes in as text."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

MAX_MESSAGE_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Condition:
    type: str
    is_true: bool
    reason: str
    message: str


def invalid_condition(sentences: Iterable[str]) -> Condition:
    return Condition("Ready", False, "InvalidSpec", "; ".join(sentences))


def conditions_json(
    wanted: Iterable[Condition],
    stored: Iterable[dict[str, Any]],
    *,
    generation: int,
    now: str,
) -> list[dict[str, Any]]:
    """Return the conditions to store.

    `lastTransitionTime` changes only when that condition's status does; conditions that are no
    longer wanted are removed. A type occurs once: several messages become one text.
    """
    before = {condition["type"]: condition for condition in stored}
    result = []
    for condition in _one_of_each_type(wanted):
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


def _one_of_each_type(wanted: Iterable[Condition]) -> list[Condition]:
    by_type: dict[str, Condition] = {}
    for condition in wanted:
        first = by_type.setdefault(condition.type, condition)
        if first is condition:
            continue
        if first.is_true == condition.is_true:
            message = f"{first.message}; {condition.message}"
            by_type[condition.type] = replace(first, message=message)
        elif first.is_true:
            by_type[condition.type] = condition  # what is not so counts
    return list(by_type.values())
