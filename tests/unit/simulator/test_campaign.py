"""A campaign runs the seeds that it was asked for, in the weather that it was asked for."""

import io

from rich.console import Console

from tests.simulator.campaign import campaign
from tests.simulator.run import RunResult
from tests.simulator.runner import weather_at
from tests.simulator.storms import ALL_WEATHERS

SEEDS = range(7, 12)


def broken_at(*seeds: int) -> tuple[list[int], str]:
    """Which seeds were run until the first of those, and what was told of it."""
    asked: list[int] = []

    def work(seed: int) -> RunResult:
        asked.append(seed)
        violation = ("I6", "a record is gone") if seed in seeds else None
        return RunResult(seed, "options", violation, 1, 1, 0.1, weather="files go")

    told = io.StringIO()
    campaign(SEEDS, 1, Console(file=told), goes_on=len(seeds) > 1, work=work)
    return asked, told.getvalue()


def test_it_stops_at_the_first_violation_and_says_how_to_replay_it() -> None:
    asked, told = broken_at(9)
    assert asked == [7, 8, 9]
    assert 'make sim-replay SEED=9 WEATHER="files go"' in told


def test_told_to_go_on_it_runs_them_all() -> None:
    asked, told = broken_at(8, 10)
    assert asked == list(SEEDS)
    assert ("seed 8: I6" in told, "seed 10: I6" in told) == (True, True)


def test_all_weathers_come_one_after_another() -> None:
    every = list(ALL_WEATHERS)
    assert [weather_at(seed, "all") for seed in range(1, len(every) + 1)] == every
    assert weather_at(1 + len(every), "all") == every[0]
    assert [weather_at(seed, "files go") for seed in (1, 2)] == ["files go"] * 2
