"""Conditions of a status: what several planners have to say of one type."""

from tidemark_operator.reconcile.conditions import Condition, stored_conditions


def shown(*wanted: Condition) -> list[tuple[str, str, str, str]]:
    found = stored_conditions(wanted, (), generation=1, now="2026-01-01T00:00:00Z")
    return [(each.type, each.status, each.reason, each.message) for each in found]


def test_a_type_is_there_once_and_its_text_says_all() -> None:
    """The API server takes no list with two of one type."""
    pinned = Condition("Placed", False, "PlacementOnLeavingBroker", "change it")
    waiting = Condition("Placed", False, "Waiting", "partition 0: start broker 9")
    ready = Condition("Ready", True, "AllPartitionsLed", "all")
    assert shown(ready, pinned, waiting) == [
        ("Ready", "True", "AllPartitionsLed", "all"),
        ("Placed", "False", "PlacementOnLeavingBroker", "change it; partition 0: start broker 9"),
    ]


def test_of_two_that_differ_the_one_that_is_not_so_counts() -> None:
    led = Condition("Ready", True, "AllPartitionsLed", "all")
    too_few = Condition("Ready", False, "NotEnoughBrokers", "raise replicas")
    expected = [("Ready", "False", "NotEnoughBrokers", "raise replicas")]
    assert shown(led, too_few) == shown(too_few, led) == expected
