"""Work that pauses: a generator that yields after each small piece of it, then returns its outcome.
A piece that is worth many says so: it yields how many steps it was.

Whoever runs it decides how many pieces are done at once; what a pause is for is not known here.
"""

from collections.abc import Generator
from typing import TypeVar

Outcome = TypeVar("Outcome")
Steps = Generator[int, None, Outcome]
WHOLE_TURN = 1 << 20  # of a piece after which others shall have their turns


def all_steps(steps: Steps[Outcome]) -> Outcome:
    """Without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
