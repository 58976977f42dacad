"""`make sim`: a campaign of seeds. Exit code 1 with the first violation, 0 when there is none.

python -m tests.simulator.runner --seeds 1000 --first-seed 1 --jobs 2
python -m tests.simulator.runner --seeds 130 --weather all --go-on
"""

import argparse
import logging
import os
import signal
import sys
from functools import partial

from rich.console import Console

from tests.simulator.campaign import campaign, show_coverage
from tests.simulator.run import RunResult, run_seed
from tests.simulator.storms import ALL_WEATHERS, seconds_of

EACH_IN_TURN = "all"
NAMES = tuple(ALL_WEATHERS)


def weather_at(seed: int, asked: str) -> str:
    if asked != EACH_IN_TURN:
        return asked
    return NAMES[(seed - 1) % len(NAMES)]


def run_in(seed: int, asked: str) -> RunResult:
    """For as long as mutants are looked for in that weather."""
    weather = weather_at(seed, asked)
    return run_seed(seed, seconds_of(weather), weather)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--weather",
        default="",
        choices=(EACH_IN_TURN, *NAMES),
        help="nothing but that one, shorter runs; all: each seed in the next one",
    )
    parser.add_argument("--go-on", action="store_true", help="do not stop at a violation")
    options = parser.parse_args(arguments)
    # Told to end, it ends its workers too, each after the run that it is in.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    logging.disable(logging.CRITICAL)  # the trace says it all; see sim-replay
    console = Console()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    work = partial(run_in, asked=options.weather) if options.weather else run_seed
    result = campaign(seeds, options.jobs, console, goes_on=options.go_on, work=work)
    show_coverage(console, result)
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())
