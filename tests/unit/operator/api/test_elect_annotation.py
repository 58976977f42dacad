"""The annotation that chooses leaders: which texts are read, and what is said of the others."""

import pytest
from tidemark_operator.api.elect_annotation import (
    ELECT_ANNOTATION,
    MAX_CHOICES,
    LeaderChoice,
    annotated_choices,
    choice_text,
    elect_fault,
)
from tidemark_protocol.ids import BrokerId, LeaderEpoch


def choice(partition: int, leader: int, leader_epoch: int) -> LeaderChoice:
    return LeaderChoice(partition, BrokerId(leader), LeaderEpoch(leader_epoch))


def annotated(text: str) -> dict[str, str]:
    return {ELECT_ANNOTATION: text}


@pytest.mark.parametrize(
    "annotations", [{}, {"other": "0=2@5"}, {ELECT_ANNOTATION: ""}, {ELECT_ANNOTATION: " "}]
)
def test_without_text_nothing_is_chosen_and_nothing_is_wrong(annotations: dict[str, str]) -> None:
    assert (annotated_choices(annotations), elect_fault(annotations)) == ((), None)


def test_several_choices_are_read_in_their_order() -> None:
    found = annotated_choices(annotated(" 1=0@7 ,0=2@5"))
    assert found == (choice(1, 0, 7), choice(0, 2, 5))
    assert annotated_choices(annotated(choice_text(found[0]))) == found[:1]


@pytest.mark.parametrize(
    "text",
    ["0=2", "0=2@", "-1=2@5", "0=-1@5", "0=2@5,", "0=2@5;1=2@5", "0 = 2@5", "100000=2@5", "٠=2@5"],
)
def test_one_wrong_entry_makes_the_whole_annotation_invalid(text: str) -> None:
    annotations = annotated(f"3=1@4,{text}")
    assert annotated_choices(annotations) == ()
    fault = elect_fault(annotations)
    assert fault is not None
    assert repr(annotations[ELECT_ANNOTATION]) in fault


def test_choices_have_a_maximum() -> None:
    entries = [choice_text(choice(number, 2, 5)) for number in range(MAX_CHOICES + 1)]
    assert len(annotated_choices(annotated(",".join(entries[:-1])))) == MAX_CHOICES
    assert annotated_choices(annotated(",".join(entries))) == ()


def test_a_long_wrong_text_is_shown_by_its_beginning() -> None:
    fault = elect_fault(annotated("x" * 5000))
    assert fault is not None
    assert fault.endswith("found '" + "x" * 99)
