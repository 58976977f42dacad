"""`make sim`: a campaign of seeds. Exit code 1 with the first violation, 0 when there is none.

python -m tests.simulator.runner --seeds 1000 --first-seed 1 --jobs 2
"""

import argparse
import logging
import os
import signal
import sys

from rich.console import Console

from tests.simulator.campaign import campaign, show_coverage


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--go-on", action="store_true", help="do not stop at a violation")
    options = parser.parse_args(arguments)
    # Told to end, it ends its workers too, each after the run that it is in.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    logging.disable(logging.CRITICAL)  # the trace says it all; see sim-replay
    console = Console()
    result = campaign(
        options.first_seed, options.seeds, options.jobs, console, goes_on=options.go_on
    )
    show_coverage(console, result)
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())
