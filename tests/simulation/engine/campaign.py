"""Many seeds on several processors: progress, runs per minute, and what happened in them.

A campaign stops at the first violation unless asked to go on; each is shown with its seed and the
one command that replays it.
"""

import gc
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.simulation.checks.coverage_rows import ROWS
from tests.simulation.engine.run import RunResult, run_seed
from tests.support.interrupts import Stop, end_workers, workers_that_hear_no_ctrl_c

LOG_LINE_EVERY_S = 60.0


@dataclass(slots=True)
class CampaignResult:
    runs: int = 0
    seconds: float = 0.0
    events: int = 0
    simulated_seconds: float = 0.0
    coverage: Counter[str] = field(default_factory=Counter)
    runs_with: Counter[str] = field(default_factory=Counter)
    retained_us: dict[str, list[int]] = field(default_factory=dict)  # by promise
    failures: list[RunResult] = field(default_factory=list)

    @property
    def runs_per_minute(self) -> float:
        return 60 * self.runs / self.seconds if self.seconds else 0.0

    def add(self, result: RunResult) -> None:
        self.runs += 1
        self.events += result.events
        self.simulated_seconds += result.simulated_us / 1e6
        self.coverage.update(result.coverage)
        self.runs_with.update(dict.fromkeys(result.coverage, 1))
        for name, retained_us in result.retained_us.items():
            self.retained_us.setdefault(name, []).append(retained_us)
        if result.violation is not None:
            self.failures.append(result)


def results_of(
    seeds: Iterable[int], jobs: int, work: Callable[[int], RunResult] = run_seed
) -> Generator[RunResult, None, None]:
    """In the order in which they end. With one job in this process."""
    if jobs == 1:
        yield from map(work, seeds)
        return
    waiting = iter(seeds)
    # Spawned, not forked: a child begins as a run from the command line does.
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=keep_garbage_of_runs_only) as pool:

        def begin(most: int) -> list[Future[RunResult]]:
            with workers_that_hear_no_ctrl_c():  # the pool starts a worker when it submits
                return [pool.submit(work, seed) for seed in islice(waiting, most)]

        try:
            running = set(begin(2 * jobs))
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    running.update(begin(1))
                    yield future.result()
        except (KeyboardInterrupt, GeneratorExit):  # the latter where the reader broke off
            end_workers()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def keep_garbage_of_runs_only() -> None:
    """A run ends with a collection of its own; no other is needed in a process that only runs
    seeds, nor a look at what was imported."""
    gc.collect()
    gc.freeze()
    gc.disable()


def campaign(
    seeds: range,
    jobs: int,
    console: Console,
    *,
    goes_on: bool = False,
    work: Callable[[int], RunResult] = run_seed,
    stop: Stop | None = None,
) -> CampaignResult:
    """What there was until then when it is interrupted."""
    result = CampaignResult()
    stop = stop or Stop()
    began = last_line = time.monotonic()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[speed]:.0f} runs/min"),
    )
    with Progress(*columns, console=console) as progress, suppress(KeyboardInterrupt), stop:
        task = progress.add_task(f"seeds from {seeds.start}", total=len(seeds), speed=0.0)
        for found in results_of(seeds, jobs, work):
            result.add(found)
            result.seconds = time.monotonic() - began
            progress.update(task, advance=1, speed=result.runs_per_minute)
            if found.violation is not None:
                show_failure(console, found)
                if not goes_on:
                    break
            if stop.signal_number:
                break
            if not console.is_terminal and time.monotonic() > last_line + LOG_LINE_EVERY_S:
                last_line = time.monotonic()
                console.print(progress_line(result, len(seeds)), markup=False)
    result.seconds = time.monotonic() - began
    return result


def progress_line(result: CampaignResult, seeds: int) -> str:
    """What a bar cannot say where nobody sees it move."""
    return (
        f"{result.runs} of {seeds} runs, {result.runs_per_minute:.0f} a minute,"
        f" {len(result.failures)} violations"
    )


def show_failure(console: Console, found: RunResult) -> None:
    assert found.violation is not None
    name, text = found.violation
    console.print(f"seed {found.seed}: {name}", style="bold red", markup=False)
    console.print(f"  {text}", markup=False, soft_wrap=True)
    console.print(f"  at {found.simulated_us / 1e6:.3f} s; options: {found.options}", markup=False)
    profile = f' PROFILE="{found.profile}"' if found.profile else ""
    console.print(f"  make sim-replay SEED={found.seed}{profile}", markup=False)


def show_times(console: Console, result: CampaignResult) -> None:
    """A promise that is kept later and later is seen before its bound."""
    table = Table(title="promises kept after, in seconds", title_justify="left")
    table.add_column("promise")
    for name in ("runs", "p50", "p99", "max"):
        table.add_column(name, justify="right")
    for name, retained_us in sorted(result.retained_us.items()):
        times = sorted(retained_us)
        shown = (percentile(times, 50), percentile(times, 99), times[-1])
        table.add_row(name, str(len(times)), *(f"{each / 1e6:.3f}" for each in shown))
    console.print(table)


def percentile(ordered: Sequence[int], percent: int) -> int:
    """The smallest value that so many percent do not exceed."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def show_coverage(console: Console, result: CampaignResult) -> None:
    if result.runs:
        _show_tables(console, result)
    console.print(
        f"{result.runs} runs, {result.simulated_seconds:.0f} simulated seconds, {result.events}"
        f" events in {result.seconds:.0f} s: {result.runs_per_minute:.0f} runs per minute,"
        f" {len(result.failures)} violations",
        markup=False,
        soft_wrap=True,
    )


def _show_tables(console: Console, result: CampaignResult) -> None:
    table = Table(title=f"what happened in {result.runs} runs", title_justify="left")
    table.add_column("event")
    table.add_column("times", justify="right")
    table.add_column("runs with it", justify="right")
    for name in sorted({*ROWS, *result.coverage}):
        table.add_row(name, str(result.coverage[name]), str(result.runs_with[name]))
    console.print(table)
    show_times(console, result)
