"""`make sim-exhaustive`: all interleavings within bounds that two cores finish in ten minutes.

Prints states, depth and states per second of each part; exits 1 with the shortest counterexample.
`python -m tests.model FAULTS [KIND,...]` explores one part only, without a bound on states.
Ctrl-C ends it with what was found until then, and exit code 130.
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context

from tests.model.moves import KINDS
from tests.model.search import Bounds, Result, begun_in, explored, transcript
from tests.support.interrupts import EXIT_INTERRUPTED, end_workers, workers_that_hear_no_ctrl_c


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


def faults(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected how many faults, from 0 on, found {text!r}")
    return int(text)


def kinds(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    if unknown := [kind for kind in chosen if kind not in KINDS]:
        known = ",".join(KINDS)
        raise argparse.ArgumentTypeError(f"expected kinds of {known}, found {','.join(unknown)!r}")
    return chosen


def parts_requested_for(arguments: list[str]) -> tuple[Part, ...]:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("faults", type=faults, nargs="?", help="how many; without: all parts")
    parser.add_argument(
        "kinds", type=kinds, nargs="?", default=KINDS, help=f"of them: {','.join(KINDS)} (all)"
    )
    options = parser.parse_args(arguments)
    if options.faults is None:
        return PARTS
    return (Part("world", Bounds(records=1, faults=options.faults, kinds=options.kinds)),)


def main(arguments: list[str]) -> int:
    parts = parts_requested_for(arguments)
    total, ended, failed = 0, 0, False
    with ProcessPoolExecutor(2, mp_context=get_context("fork"), max_tasks_per_child=None) as pool:
        try:
            with workers_that_hear_no_ctrl_c():
                under_way = {pool.submit(searched, part): part for part in parts}
            for done in as_completed(under_way):
                part, result = under_way[done], done.result()
                total += result.states
                ended += 1
                whole = "whole" if result.is_complete else "every order to that depth"
                print(
                    f"{part.title}: states {result.states}, depth {result.depth} ({whole}),"
                    f" states per second {result.states_per_second}",
                    flush=True,
                )
                if result.broken:
                    failed = True
                    print(transcript(part.situation, result))
        except KeyboardInterrupt:
            end_workers()
    print(f"states {total}, {'VIOLATED' if failed else 'no violation'}")
    if ended < len(parts):
        print(f"interrupted after {ended} of {len(parts)} parts")
        return EXIT_INTERRUPTED
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
