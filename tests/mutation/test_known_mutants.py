"""The seeds that noticed a mutant still do, and break nothing without it."""

import pytest

from tests.mutation.mutant import injected
from tests.mutation.mutant_hunt import (
    ControlFails,
    check_control,
    hunt,
    known_seeds,
    run_mutated,
)
from tests.mutation.mutants import mutant_of

KNOWN = known_seeds()
QUICK = "racks are not looked at"  # noticed with a seed's first topic
# One for each judge that has most to say; the others with `-m long`.
ALWAYS = (
    "joins below the watermark",
    "truncation to the high watermark",
    "acks=all admitted and acknowledged below min ISR",
    "every start counts as clean",
    "any sequence is the next one",
    "what a disk gives back is served unlooked at",
    "the Lease is renewed by the loop that works",
)


def _cases() -> list[object]:
    rare = pytest.mark.long
    return [
        pytest.param(name, seed, marks=() if name in ALWAYS else rare, id=name)
        for name, seed in KNOWN.items()
    ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "seed"), _cases())
def test_the_seed_that_noticed_a_mutant_still_does(name: str, seed: int) -> None:
    assert run_mutated(seed, name).violation is not None
    check_control(seed, mutant_of(name))


def test_those_that_always_run_have_a_seed() -> None:
    assert set(ALWAYS) <= set(KNOWN)


def test_a_seed_that_breaks_something_without_the_mutant_says_nothing_of_it() -> None:
    mutant, seed = mutant_of(QUICK), known_seeds()[QUICK]
    assert hunt(mutant, jobs=1, most_seeds=1, known=seed) == ("I18", seed, seed - 1)
    with injected(mutant):  # as if the product had the defect
        with pytest.raises(ControlFails):
            hunt(mutant, jobs=1, most_seeds=1, known=seed)
        with pytest.raises(ControlFails):
            hunt(mutant, jobs=1, most_seeds=seed, known=None)
