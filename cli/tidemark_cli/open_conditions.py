"""Conditions of Topics and BrokerPools that somebody should look at, and no others. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

TOLD_WHEN_TRUE = frozenset({"Attention", "Moving"})  # all others are well when they are True


@dataclass(frozen=True, slots=True)
class OpenCondition:
    kind: str  # Topic | BrokerPool
    name: str  # metadata.name
    type: str
    reason: str
    message: str

    def __str__(self) -> str:
        what = self.type if self.type in TOLD_WHEN_TRUE else f"not {self.type}"
        return f"{self.kind.lower()}/{self.name}: {what}: {self.message}"


def open_conditions(kind: str, items: Iterable[Mapping[str, Any]]) -> Iterator[OpenCondition]:
    """In the order of the objects and of their conditions."""
    for item in items:
        for condition in (item.get("status") or {}).get("conditions") or ():
            name, type_ = str(item["metadata"]["name"]), str(condition["type"])
            if (condition["status"] == "True") == (type_ in TOLD_WHEN_TRUE):
                reason, message = (
                    str(condition.get("reason", "")),
                    str(condition.get("message", "")),
                )
                yield OpenCondition(kind, name, type_, reason, message)


@dataclass(frozen=True, slots=True)
class ReadyCondition:
    is_true: bool
    reason: str
    message: str
    is_of_this_spec: bool  # whether the operator has seen the present spec


def ready_condition(item: Mapping[str, Any]) -> ReadyCondition | None:
    """None: the operator has not looked at the object yet."""
    for condition in (item.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Ready":
            seen = int((item.get("status") or {}).get("observedGeneration", 0))
            return ReadyCondition(
                condition["status"] == "True",
                str(condition.get("reason", "")),
                str(condition.get("message", "")),
                seen >= int(item["metadata"].get("generation", 0)),
            )
    return None
