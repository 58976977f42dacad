"""Run work in small steps: a generator yields after each step and returns its outcome.

A step that costs as much as several yields that number. The caller decides how many steps run
before other work does.
"""

from collections.abc import Generator
from typing import TypeVar

Outcome = TypeVar("Outcome")
Steps = Generator[int, None, Outcome]
WHOLE_TURN = 1 << 20  # of a piece after which others shall have their turns


def all_steps(steps: Steps[Outcome]) -> Outcome:
    """Run all steps without a pause and return the outcome."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
