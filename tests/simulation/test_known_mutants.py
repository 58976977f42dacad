"""The seeds that noticed a mutant still do: neither faults nor judges have become tamer."""

import pytest

from tests.simulator.mutant_hunt import known_seeds, run_mutated

KNOWN = known_seeds()
# One for each judge that has most to say; the others with `-m long`.
ALWAYS = (
    "joins below the watermark",
    "no truncation before the first fetch",
    "acks=all admitted and acknowledged below min ISR",
    "every start counts as clean",
    "any sequence is the next one",
    "what a disk gives back is served unlooked at",
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


def test_those_that_always_run_have_a_seed() -> None:
    assert set(ALWAYS) <= set(KNOWN)
