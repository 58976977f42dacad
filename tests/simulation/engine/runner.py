"""`make sim`: a campaign of seeds. Exit code 1 with the first violation, 0 when there is none, 130
when Ctrl-C ended it (143: SIGTERM); what there was by then is shown.

python -m tests.simulation.engine.runner --seeds 1000 --first-seed 1 --jobs 2
python -m tests.simulation.engine.runner --seeds 130 --profile all --go-on
"""

import argparse
import logging
import os
import signal
import sys
from functools import partial

from rich.console import Console

from tests.simulation.engine.arguments import PROFILES, at_least, profile
from tests.simulation.engine.campaign import campaign, show_coverage
from tests.simulation.engine.run import RunResult, run_seed
from tests.simulation.faults.fault_profiles import ALL_PROFILES, seconds_of
from tests.support.interrupts import Stop

EACH_IN_TURN = "all"
NAMES = tuple(ALL_PROFILES)


def profile_at(seed: int, requested: str) -> str:
    if requested != EACH_IN_TURN:
        return requested
    return NAMES[(seed - 1) % len(NAMES)]


def run_in(seed: int, requested: str) -> RunResult:
    """For as long as mutants are looked for in that fault profile."""
    profile = profile_at(seed, requested)
    return run_seed(seed, seconds_of(profile), profile)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, epilog=PROFILES)
    parser.add_argument("--seeds", type=at_least(1), default=200, help="how many (200)")
    parser.add_argument("--first-seed", type=at_least(0), default=1, help="the others follow (1)")
    parser.add_argument(
        "--jobs", type=at_least(1), default=os.cpu_count() or 1, help="processes (one a processor)"
    )
    parser.add_argument(
        "--profile",
        default="",
        metavar="NAME",
        type=profile(EACH_IN_TURN),
        help="nothing but that one, shorter runs; all: each seed in the next one",
    )
    parser.add_argument("--go-on", action="store_true", help="do not stop at a violation")
    options = parser.parse_args(arguments)
    stop = Stop()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in the background of a script
        signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    logging.disable(logging.CRITICAL)  # the trace says it all; see sim-replay
    console = Console()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    work = partial(run_in, requested=options.profile) if options.profile else run_seed
    result = campaign(seeds, options.jobs, console, goes_on=options.go_on, work=work, stop=stop)
    show_coverage(console, result)
    if stop.signal_number:
        by = signal.Signals(stop.signal_number).name
        console.print(f"ended by {by} after {result.runs} of {len(seeds)} runs", markup=False)
        return 128 + stop.signal_number
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())
