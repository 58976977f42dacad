"""A journal lets another process undo what a killed runner did."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tidemark_chaos.heal_journal import JOURNAL, HealJournal, RunnerAlive, heal, start_time

Sleeper = subprocess.Popen[bytes]


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def of_a_dead_runner(directory: Path) -> None:
    """Say that the journal is of a process that has ended."""
    path = directory / JOURNAL
    stored = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**stored, "runner_started": 1}))


def test_a_paused_process_is_resumed(sleeper: Sleeper, tmp_path: Path) -> None:
    HealJournal(tmp_path).add("resume", sleeper.pid, "broker 1")
    os.kill(sleeper.pid, signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    of_a_dead_runner(tmp_path)
    told: list[str] = []
    assert heal(tmp_path, told.append) == 1
    assert told == [f"resume broker 1 (process {sleeper.pid})"]
    _, status = os.waitpid(sleeper.pid, os.WCONTINUED)
    assert os.WIFCONTINUED(status)
    assert not (tmp_path / JOURNAL).exists()


def test_a_process_that_got_the_id_of_another_one_is_not_signalled(
    sleeper: Sleeper, tmp_path: Path
) -> None:
    HealJournal(tmp_path).add("stop", sleeper.pid, "the operator")
    path = tmp_path / JOURNAL
    stored = msgspec.json.decode(path.read_bytes())
    stored["undo"][0]["started"] += 1
    path.write_bytes(msgspec.json.encode(stored))
    of_a_dead_runner(tmp_path)
    assert heal(tmp_path, lambda _: None) == 0
    assert sleeper.poll() is None


def test_what_a_living_runner_did_is_not_undone(sleeper: Sleeper, tmp_path: Path) -> None:
    HealJournal(tmp_path).add("stop", sleeper.pid, "the operator")
    with pytest.raises(RunnerAlive, match=f"process {os.getpid()} runs an experiment"):
        heal(tmp_path, lambda _: None)
    assert sleeper.poll() is None


def test_what_was_healed_is_not_in_the_journal(sleeper: Sleeper, tmp_path: Path) -> None:
    journal = HealJournal(tmp_path)
    journal.add("resume", sleeper.pid, "broker 1")
    journal.remove("resume", sleeper.pid)
    of_a_dead_runner(tmp_path)
    assert heal(tmp_path, lambda _: None) == 0


def test_paths_are_healed_before_and_after_the_processes(sleeper: Sleeper, tmp_path: Path) -> None:
    journal = HealJournal(tmp_path)
    ballast = tmp_path / "chaos-ballast"
    ballast.touch()
    journal.add_path("unmount", tmp_path / "volume", "the volume of broker 0")
    journal.add("stop", sleeper.pid, "the operator")
    journal.add_path("delete", ballast, "ballast of broker 0")
    journal.add_path("thaw", tmp_path / "volume", "the volume of broker 1")
    journal.remove_path("thaw", tmp_path / "volume")
    of_a_dead_runner(tmp_path)
    told: list[str] = []
    assert heal(tmp_path, told.append) == 3
    assert [each.partition(" ")[0] for each in told] == ["delete", "stop", "unmount"]
    assert not ballast.exists()


def test_without_a_journal_there_is_nothing_to_heal(tmp_path: Path) -> None:
    assert heal(tmp_path, lambda _: None) == 0


def test_an_ended_process_has_no_start_time() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert start_time(process.pid) is None
    process.wait()
    assert start_time(os.getpid()) is not None
