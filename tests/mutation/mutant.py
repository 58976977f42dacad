"""What a mutant is: guards of production code changed where their anchors stand, in a test.

A guard that is one half of a pair (either alone keeps the promise) is planted as the pair, and its
name says so.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.mutation.edits import Patch, patched


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str  # what is no longer done
    rule: str  # the guard of invariants.md, or the rule of safety.md
    patches: tuple[Patch, ...]
    test: str  # a pytest node that fails with it: file, or file::name
    profile: str = ""  # of fault_profiles.py; "": no seed is tried
    search: str = ""  # in exhaustive/planted.py: the same guard, noticed by every order of a few
    pair: str = ""  # the mutant that takes its other half away too: either alone keeps the promise
    why_no_seed: str = ""  # where no seed is tried: what the simulated faults lack

    @property
    def guards(self) -> str:
        """For the table."""
        return ", ".join(patch.guard for patch in self.patches)


@contextmanager
def injected(mutant: Mutant) -> Iterator[None]:
    """While inside, production code is as the mutant says."""
    with patched(mutant.patches):
        yield
