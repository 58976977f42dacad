"""Build conditions of a status, as metav1.Condition. The time comes in as text."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidemark_operator.api.objects import ConditionStatus

MAX_MESSAGE_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Condition:
    type: str
    is_true: bool
    reason: str
    message: str


def invalid_condition(sentences: Iterable[str]) -> Condition:
    return Condition("Ready", False, "InvalidSpec", "; ".join(sentences))


def stored_conditions(
    wanted: Iterable[Condition],
    stored: Iterable[ConditionStatus],
    *,
    generation: int,
    now: str,
) -> list[ConditionStatus]:
    """Return the conditions to store.

    `lastTransitionTime` changes only when that condition's status does; conditions that are no
    longer wanted are removed. A type occurs once: several messages become one text.
    """
    before = {condition.type: condition for condition in stored}
    result = []
    for condition in _one_of_each_type(wanted):
        status = "True" if condition.is_true else "False"
        old = before.get(condition.type)
        stays = old is not None and old.status == status
        result.append(
            ConditionStatus(
                type=condition.type,
                status=status,
                reason=condition.reason,
                message=condition.message[:MAX_MESSAGE_CHARACTERS],
                last_transition_time=old.last_transition_time if old and stays else now,
                observed_generation=generation,
            )
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
