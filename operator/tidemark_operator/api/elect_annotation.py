"""Read the annotation `tidemark.dev/elect` of a Topic, which chooses a leader for a partition.

It is for cases that only a person decides (S14): "0=2@5" makes broker 2 the leader of partition 0
while that has no leader and its leader epoch is 5; commas separate several. The election raises the
epoch, so the choice applies once and the annotation may stay.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_protocol.ids import BrokerId, LeaderEpoch


@dataclass(frozen=True, slots=True)
class LeaderChoice:
    """A person's choice: this broker leads, whatever records are lost.

    It applies while the partition has no leader and the leader epoch is this one, so never twice.
    """

    partition: int
    leader: BrokerId
    leader_epoch: LeaderEpoch


ELECT_ANNOTATION = "tidemark.dev/elect"
MAX_CHOICES = 1000
_CHOICE = re.compile(r"([0-9]{1,5})=([0-9]{1,7})@([0-9]{1,18})")


def choice_text(choice: LeaderChoice) -> str:
    return f"{choice.partition}={choice.leader}@{choice.leader_epoch}"


def annotated_choices(annotations: Mapping[str, str]) -> tuple[LeaderChoice, ...]:
    """Return the choices of a valid annotation, else none."""
    return _read(annotations) or ()


def elect_fault(annotations: Mapping[str, str]) -> str | None:
    """Return the error of an annotation as a sentence for the user, or None."""
    if _read(annotations) is not None:
        return None
    return (
        f"annotation {ELECT_ANNOTATION}: expected entries such as 0=2@5 (partition 0,"
        " broker 2, leader epoch 5), separated by commas; found"
        f" {annotations[ELECT_ANNOTATION]!r:.100}"
    )


def _read(annotations: Mapping[str, str]) -> tuple[LeaderChoice, ...] | None:
    text = annotations.get(ELECT_ANNOTATION, "")
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    matches = [_CHOICE.fullmatch(part) for part in parts]
    if len(parts) > MAX_CHOICES or not all(matches):
        return None
    return tuple(
        LeaderChoice(int(m[1]), BrokerId(int(m[2])), LeaderEpoch(int(m[3]))) for m in matches if m
    )
