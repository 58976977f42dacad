"""`make sim-exhaustive`: all interleavings within bounds that two cores finish in ten minutes.

Prints states, depth and states per second of each part; exits 1 with the shortest counterexample.
`python -m tests.exhaustive FAULTS [KIND,...]` explores one part only, without a bound on states.
"""

import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context

from tests.exhaustive.moves import KINDS
from tests.exhaustive.search import Bounds, Result, begun_in, explored, transcript


@dataclass(frozen=True, slots=True)
class Part:
    situation: str
    bounds: Bounds

    @property
    def title(self) -> str:
        bounds = self.bounds
        kinds = "all kinds" if bounds.kinds == KINDS else ", ".join(bounds.kinds)
        return (
            f"{self.situation.splitlines()[0]}: records {bounds.records},"
            f" faults {bounds.faults} ({kinds})"
        )


CRASHES = ("kill", "fence")
WIRE = ("fetch", "propose", "controller")

# At some 5000 states a second and core. Two faults do not end within that: tried to a depth.
AT_MOST = 800_000

# Largest first: two of them are under way at a time.
PARTS = (
    Part("world isr=0,1", Bounds(1, 2, kinds=("fence", *WIRE), states=AT_MOST)),
    Part("world", Bounds(1, 2, kinds=CRASHES, states=AT_MOST)),
    Part("world isr=0,1", Bounds(2, 1, states=AT_MOST)),
    Part("world", Bounds(2, 1, states=AT_MOST)),
    Part("world leader=1", Bounds(2, 1, states=AT_MOST)),
    Part("world flush=Always", Bounds(1, 2, kinds=("kill", "fetch"), states=AT_MOST)),
    # With one fault an ISR of three never falls below two, and these were the same world thrice.
    Part("world isr=0,1 min-isr=1", Bounds(2, 1, states=AT_MOST)),
    Part("world isr=0,1 rule=Isr", Bounds(2, 1, states=AT_MOST)),
)


def searched(part: Part) -> Result:
    return explored(begun_in(part.situation), part.bounds)


def main(arguments: list[str]) -> int:
    parts: tuple[Part, ...] = PARTS
    if arguments:
        faults, *kinds = arguments
        chosen = tuple(kinds[0].split(",")) if kinds else KINDS
        parts = (Part("world", Bounds(records=1, faults=int(faults), kinds=chosen)),)
    total, failed = 0, False
    with ProcessPoolExecutor(2, mp_context=get_context("fork"), max_tasks_per_child=None) as pool:
        under_way = {pool.submit(searched, part): part for part in parts}
        for done in as_completed(under_way):
            part, result = under_way[done], done.result()
            total += result.states
            whole = "whole" if result.is_complete else "every order to that depth"
            print(
                f"{part.title}: states {result.states}, depth {result.depth} ({whole}),"
                f" states per second {result.states_per_second}",
                flush=True,
            )
            if result.broken:
                failed = True
                print(transcript(part.situation, result))
    print(f"states {total}, {'VIOLATED' if failed else 'no violation'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
