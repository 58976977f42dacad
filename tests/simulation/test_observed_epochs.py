"""The judge of what controllers tell brokers: no older word counts."""

from types import SimpleNamespace
from typing import Any

import pytest
from tidemark_protocol.ids import BrokerId

from tests.simulation.checks.observed_epochs import GivenIds, SeenEpochs
from tests.simulation.checks.violations import Violation

ME, PROCESS = BrokerId(0), 17


def reported(
    controller_epoch: int = 5, image: int = 3, own: int = 2, other: int = 8, *, others: bool = True
) -> Any:
    states = {BrokerId(1): SimpleNamespace(broker_epoch=other)} if others else {}
    metadata = SimpleNamespace(
        controller_epoch=controller_epoch, image_version=image, brokers=states
    )
    return SimpleNamespace(broker_epoch=own, metadata=metadata)


@pytest.mark.parametrize(
    ("later", "what"),
    [
        (reported(controller_epoch=4), "controller epoch 5 became 4"),
        (reported(image=2), "image 3 became 2"),
        (reported(own=3), "epoch became 3"),
        (reported(image=4, other=7), "epoch 8 of broker 1 became 7"),
    ],
)
def test_an_older_word_is_a_violation(later: Any, what: str) -> None:
    checker = SeenEpochs()
    checker.check(ME, PROCESS, reported())
    with pytest.raises(Violation, match=what):
        checker.check(ME, PROCESS, later)


def test_a_later_word_and_one_to_another_process_are_none() -> None:
    checker = SeenEpochs()
    for word in (reported(own=-1), reported(), reported(image=4), reported(image=5, other=9)):
        checker.check(ME, PROCESS, word)
    checker.check(ME, PROCESS + 1, reported(image=1, other=7))


def test_who_is_left_out_for_a_while_does_not_come_back_as_an_earlier_one() -> None:
    checker = SeenEpochs()
    checker.check(ME, PROCESS, reported())
    checker.check(ME, PROCESS, reported(image=4, others=False))
    with pytest.raises(Violation, match="epoch 8 of broker 1 became 7"):
        checker.check(ME, PROCESS, reported(image=5, other=7))


def test_a_later_controller_may_not_know_the_last_registrations_of_a_deposed_one() -> None:
    """Seed 30000087 of "leases go": it had read before they were written (0083)."""
    checker = SeenEpochs()
    checker.check(ME, PROCESS, reported())
    checker.check(ME, PROCESS, reported(controller_epoch=6, image=1, other=7))
    with pytest.raises(Violation, match="epoch 7 of broker 1 became 6"):
        checker.check(ME, PROCESS, reported(controller_epoch=6, image=2, other=6))


def test_no_producer_id_is_given_twice() -> None:
    given = GivenIds()
    assert given.taken(7) is None
    assert given.taken(8) is None
    assert isinstance(given.taken(7), Violation)
