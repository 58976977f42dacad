"""A campaign runs the seeds that it was asked for, in the fault profile that it was asked for."""

import io
import os
import signal
import subprocess
import sys
import threading
import weakref
from multiprocessing import active_children
from pathlib import Path

import pytest
from rich.console import Console

from tests.simulation.engine.campaign import campaign, results_of
from tests.simulation.engine.run import RunResult
from tests.simulation.engine.runner import profile_at
from tests.simulation.faults.fault_profiles import ALL_PROFILES
from tests.support.interrupts import Stop, workers_that_hear_no_ctrl_c
from tests.support.waiting import wait_for

SEEDS = range(7, 12)
ROOT = Path(__file__).parents[2]
AT_WORK_SECONDS = 3.0  # of a processor; imports take one


def broken_at(*seeds: int) -> tuple[list[int], str]:
    """Which seeds were run until the first of those, and what was told of it."""
    requested: list[int] = []

    def work(seed: int) -> RunResult:
        requested.append(seed)
        violation = ("I6", "a record is gone") if seed in seeds else None
        return RunResult(seed, "options", violation, 1, 1, 0.1, profile="files go")

    reported = io.StringIO()
    campaign(SEEDS, 1, Console(file=reported), goes_on=len(seeds) > 1, work=work)
    return requested, reported.getvalue()


def test_it_stops_at_the_first_violation_and_says_how_to_replay_it() -> None:
    requested, reported = broken_at(9)
    assert requested == [7, 8, 9]
    assert 'make sim-replay SEED=9 PROFILE="files go"' in reported


def test_told_to_go_on_it_runs_them_all() -> None:
    requested, reported = broken_at(8, 10)
    assert requested == list(SEEDS)
    assert ("seed 8: I6" in reported, "seed 10: I6" in reported) == (True, True)


def test_all_profiles_come_one_after_another() -> None:
    every = list(ALL_PROFILES)
    assert [profile_at(seed, "all") for seed in range(1, len(every) + 1)] == every
    assert profile_at(1 + len(every), "all") == every[0]
    assert [profile_at(seed, "files go") for seed in (1, 2)] == ["files go"] * 2


def test_an_interrupt_that_got_lost_in_a_run_ends_the_campaign_after_it() -> None:
    """What a weak reference's callback raises is told to nobody."""
    stop = Stop()

    def work(seed: int) -> RunResult:
        stop.signal_number = signal.SIGINT
        return RunResult(seed, "options", None, 1, 1, 0.1)

    assert campaign(SEEDS, 1, Console(file=io.StringIO()), work=work, stop=stop).runs == 1


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_ends_a_campaign_at_once_and_what_it_had_is_shown(jobs: int) -> None:
    command = ["tests.simulation.engine.runner", "--seeds", "500", "--jobs", str(jobs)]
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whatever ours does
    )
    wait_for("a campaign that is under way", lambda: is_at_work(process.pid, jobs))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: its workers hear it too
    reported, _ = process.communicate(timeout=60)
    assert process.returncode == 130, reported
    assert "Traceback" not in reported, reported
    assert "ended by SIGINT after" in reported
    assert "of 500 runs" in reported


def is_at_work(pid: int, jobs: int) -> bool:
    """It hears signals, and its workers are there; alone it has spent a while on its seeds."""
    process = Path(f"/proc/{pid}")
    caught = (process / "status").read_text().partition("SigCgt:")[2].split()[0]
    if not int(caught, 16) & 1 << signal.SIGTERM - 1:  # set behind that of SIGINT
        return False
    if jobs > 1:
        children = (process / f"task/{pid}/children").read_text().split()
        return len(children) > jobs  # and one that counts resources
    ticks = int((process / "stat").read_text().rpartition(")")[2].split()[11])
    return ticks / os.sysconf("SC_CLK_TCK") > AT_WORK_SECONDS


def test_a_signal_that_comes_before_anybody_waits_for_it_ends_what_waits_then() -> None:
    stop = Stop()
    stop(signal.SIGTERM, None)
    assert campaign(SEEDS, 1, Console(file=io.StringIO()), stop=stop).runs == 0
    stop(signal.SIGINT, None)  # while its tables are shown
    assert stop.signal_number == signal.SIGINT


class Referenced:
    """What a weak reference can be to."""


def test_an_interrupt_in_the_callback_of_a_weak_reference_leaves_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stop = Stop()

    def work(seed: int) -> RunResult:
        subject = Referenced()
        reference = weakref.ref(subject, lambda _: stop(signal.SIGINT, None))
        del subject
        assert reference() is None
        return RunResult(seed, "options", None, 1, 1, 0.1)

    assert campaign(SEEDS, 1, Console(file=io.StringIO()), work=work, stop=stop).runs == 1
    assert capsys.readouterr().err == ""


def test_a_signal_while_a_worker_is_started_waits_until_it_has_started() -> None:
    """The handler runs in this thread whichever thread the signal comes to."""
    heard: list[int] = []
    previous = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        with workers_that_hear_no_ctrl_c():
            signal.raise_signal(signal.SIGTERM)
            heard_meanwhile = list(heard)
        assert (heard_meanwhile, heard) == ([], [signal.SIGTERM])
    finally:
        signal.signal(signal.SIGTERM, previous)


def only_the_first_ends(seed: int) -> RunResult:
    if seed != SEEDS.start:
        threading.Event().wait()
    return RunResult(seed, "options", None, 1, 1, 0.1)


def test_workers_end_at_once_when_their_results_are_read_no_further() -> None:
    results = results_of(SEEDS, 2, work=only_the_first_ends)
    assert next(results).seed == SEEDS.start
    results.close()
    wait_for("the end of its workers", lambda: not active_children())
