"""`tidemark chaos`: a green experiment, a set-up that loses records and is caught, and healing."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tidemark_chaos.environments.volumes import why_impossible
from tidemark_chaos.heal_journal import JOURNAL

from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
TIDEMARK = str(ROOT / ".venv/bin/tidemark")
START_SECONDS = 90.0
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

HEAD = """
apiVersion: tidemark.dev/v1alpha1
kind: ChaosExperiment
metadata: {name: short}
spec:
"""
SHORT = """\
  rounds: 4
  quiet: 500ms
  workload: {recordsPerSecond: 50, acks: mixed}
  faults:
    - {kind: kill, target: {role: leader}}
    - {kind: pause, target: {role: leader}, for: 5s}
    - {kind: kill, target: {role: controller}}
    - {kind: terminate, target: {role: follower}}
"""
NETWORK = """\
  rounds: 2
  quiet: 500ms
  workload: {recordsPerSecond: 50}
  faults:
    - {kind: network-cut, target: {role: leader}, from: [controller], for: 5s}
    - {kind: network-delay, target: {role: follower}, delay: 200ms, for: 2s}
"""
DISKS = """\
  rounds: 3
  quiet: 500ms
  workload: {recordsPerSecond: 50}
  faults:
    - {kind: disk-full, target: {role: leader}, for: 2s}
    - {kind: disk-slow, target: {role: leader}, delay: 500ms, for: 3s}
    - {kind: disk-error, target: {role: leader}, for: 2s}
"""
NODES = """\
  rounds: 4
  quiet: 500ms
  workload: {recordsPerSecond: 50, groupConsumers: 2}
  faults:
    - {kind: node-down, target: {role: leader}, for: 5s}
    - {kind: network-loss, target: {role: follower}, loss: 0.3, for: 3s}
    - {kind: bandwidth, target: {role: leader}, bytesPerSecond: 1000, for: 3s}
    - {kind: api-server-outage, target: {role: controller}, for: 2s}
"""
GUARDED = """\
  rounds: 5
  quiet: 500ms
  workload: {recordsPerSecond: 50}
  guards: {minInSync: 3, forSeconds: 1}
  faults: [{kind: pause, target: {role: follower}, for: 100s}]
"""
LONG_PAUSE = """\
  rounds: 1
  quiet: 100ms
  workload: {recordsPerSecond: 20}
  faults: [{kind: pause, target: {role: controller}, for: 100s}]
"""

HEALED = {  # what a journal has while the fault lasts -> the fault
    "resume": "{kind: node-down, target: {role: leader}, for: 100s}",
    "thaw": "{kind: disk-slow, target: {role: leader}, delay: 4s, for: 100s}",
    "delete": "{kind: disk-full, target: {role: leader}, for: 100s}",
    "unmount": "{kind: disk-error, target: {role: leader}, for: 100s}",
}


def experiment(directory: Path, text: str) -> Path:
    path = directory / "experiment.yaml"
    path.write_text(HEAD + text)
    return path


def chaos(*words: str) -> subprocess.CompletedProcess[str]:
    command = (TIDEMARK, "chaos", *words)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)


def test_a_short_experiment_is_green_and_leaves_its_reports(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = chaos("run", "-f", str(experiment(tmp_path, SHORT)), "--out", str(out))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads((out / "report.json").read_bytes())
    assert (report["verdict"], report["lost"], report["duplicated"]) == ("PASSED", 0, 0)
    assert report["unpromised"] > report["acknowledged"] / 2, "half of a mix has acks 1 or 0"
    assert [fault["kind"] for fault in report["faults"]] == ["kill", "pause", "kill", "terminate"]
    kill, pause, *_ = report["faults"]
    assert 0 < kill["electMs"] < kill["fullIsrMs"]
    assert 1000 < pause["electMs"] < 5000 <= pause["healedMs"]
    page = (out / "report.html").read_text()
    assert "PASSED" in page and "<svg" in page and report["command"] in page
    suite = ElementTree.parse(out / "junit.xml").getroot()
    assert suite.get("failures") == "0"
    assert not (out / JOURNAL).exists()
    assert not (out / "data").exists()
    assert processes_of(out) == []


def test_links_are_cut_and_delayed_and_heal(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = chaos("run", "-f", str(experiment(tmp_path, NETWORK)), "--out", str(out))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    cut, slow = json.loads((out / "report.json").read_bytes())["faults"]
    assert 1000 < cut["electMs"] < 5000 <= cut["healedMs"] < cut["fullIsrMs"]
    assert cut["text"] == f"broker {cut['brokers'][0]} disconnected from controller for 5 s"
    # What a follower is slow by, a record with acks=all waits for.
    assert slow["latencyDuring"]["p50Ms"] > 100 > slow["latencyBefore"]["p50Ms"]


def test_disks_are_full_slow_and_broken_and_heal(tmp_path: Path) -> None:
    out, file = tmp_path / "out", experiment(tmp_path, DISKS)
    if why_impossible():
        ended = chaos("run", "-f", str(file), "--out", str(out))
        assert (ended.returncode, ended.stderr.count(why_impossible())) == (2, 3)
        return
    ended = chaos("run", "-f", str(file), "--out", str(out))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    full, slow, broken = json.loads((out / "report.json").read_bytes())["faults"]
    assert full["writeGapMs"] > 1500, "a leader without space rejects records"
    assert slow["latencyDuring"]["p99Ms"] > 300 > slow["latencyBefore"]["p50Ms"]
    assert 0 < broken["electMs"] < 2000 <= broken["healedMs"] < broken["fullIsrMs"]
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    assert not (out / "data").exists()


def test_nodes_are_down_links_are_bad_and_the_store_is_locked(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = chaos("run", "-f", str(experiment(tmp_path, NODES)), "--out", str(out))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    down, lossy, narrow, outage = json.loads((out / "report.json").read_bytes())["faults"]
    assert 1000 < down["electMs"] < 5000 <= down["healedMs"] < down["fullIsrMs"], (
        "its peers are not told of its end, so its session has to expire"
    )
    assert lossy["latencyDuring"]["p99Ms"] > 150 > lossy["latencyBefore"]["p50Ms"]
    assert narrow["latencyDuring"]["p99Ms"] > 2 * narrow["latencyBefore"]["p50Ms"]
    assert (outage["brokers"], outage["writeGapMs"] < 1500) == ([], True)


def test_a_guard_aborts_heals_and_still_verifies(tmp_path: Path) -> None:
    began = time.monotonic()
    file = experiment(tmp_path, GUARDED)
    ended = chaos("run", "-f", str(file), "--out", str(tmp_path / "out"), "-o", "json")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert time.monotonic() - began < 90, "the pause would have lasted 100 s"
    report = json.loads(ended.stdout)
    assert report["verdict"] == "ABORTED"
    assert "replicas in sync for more than 1 s, the guard is 3" in report["sentence"]
    assert (report["lost"], len(report["faults"])) == (0, 1)
    assert report["found"] == report["acknowledged"] > 100


def test_a_set_up_that_loses_records_ends_red(tmp_path: Path) -> None:
    ended = chaos("run", "-f", "examples/chaos/unsafe-control.yaml", "--out", str(tmp_path))
    assert ended.returncode == 1, ended.stdout + ended.stderr
    report = json.loads((tmp_path / "report.json").read_bytes())
    assert report["verdict"] == "FAILED"
    assert report["lost"] > 50
    found = {row["name"] for row in report["anomalies"] if row["count"]}
    assert {"lost", "online check", "inconsistent-offsets"} <= found
    assert (tmp_path / "data").is_dir(), "what a red run left on disk is evidence"


def test_a_runner_that_was_killed_is_healed_by_the_next_command(tmp_path: Path) -> None:
    runner = started(tmp_path)
    try:
        wait_for("a paused operator", lambda: operator_is_paused(tmp_path), seconds=START_SECONDS)
        runner.kill()
        runner.wait()
        assert operator_is_paused(tmp_path)  # without help for as long as the machine runs
        ended = chaos("heal", "--out", str(tmp_path / "out"))
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "resume the operator" in ended.stderr
        wait_for(
            "the end of all processes",
            lambda: processes_of(tmp_path / "out") == [],
            seconds=START_SECONDS,
        )
        assert not (tmp_path / "out" / JOURNAL).exists()
        assert "nothing to heal" in chaos("heal", "--out", str(tmp_path / "out")).stdout
    finally:
        end_all(runner, tmp_path)


@pytest.mark.parametrize("step", HEALED)
def test_whatever_a_killed_runner_did_is_healed(step: str, tmp_path: Path) -> None:
    text = LONG_PAUSE.partition("  faults:")[0] + f"  faults: [{HEALED[step]}]\n"
    if why_impossible() and step != "resume":
        ended = chaos("check", "-f", str(experiment(tmp_path, text)))
        assert (ended.returncode, why_impossible() in ended.stderr) == (2, True)
        return
    runner = started(tmp_path, text)
    log, journal = tmp_path / "runner.log", tmp_path / "out" / JOURNAL
    try:
        begun = "for 100 s" if step != "resume" else "kill -9 of broker"
        wait_for("the fault", lambda: begun in log.read_text(), seconds=START_SECONDS)
        wait_for("its undo", lambda: f'"{step}"' in journal.read_text(), seconds=START_SECONDS)
        runner.kill()
        runner.wait()
        ended = chaos("heal", "--out", str(tmp_path / "out"))
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert f"\n{step} " in f"\n{ended.stderr}"
        wait_for(
            "the end of all processes",
            lambda: processes_of(tmp_path / "out") == [],
            seconds=START_SECONDS,
        )
        assert not journal.exists()
        assert str(tmp_path) not in Path("/proc/mounts").read_text()
    finally:
        end_all(runner, tmp_path)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
def test_an_interrupt_heals_and_a_second_runner_is_rejected(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    runner = started(tmp_path)
    try:
        wait_for("a paused operator", lambda: operator_is_paused(tmp_path), seconds=START_SECONDS)
        ended = chaos("heal", "--out", str(tmp_path / "out"))
        assert ended.returncode == 2
        assert f"Process {runner.pid} runs an experiment" in ended.stderr
        assert operator_is_paused(tmp_path)
        runner.send_signal(number)
        assert runner.wait(timeout=60) == code
        assert processes_of(tmp_path / "out") == []
        assert not (tmp_path / "out" / JOURNAL).exists()
    finally:
        end_all(runner, tmp_path)


def started(directory: Path, text: str = LONG_PAUSE) -> "subprocess.Popen[bytes]":
    file = experiment(directory, text)
    with (directory / "runner.log").open("wb") as log:
        return subprocess.Popen(
            (TIDEMARK, "chaos", "run", "-f", str(file), "--out", str(directory / "out")),
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )


def operator_is_paused(directory: Path) -> bool:
    return any(state == "T" for state, _ in processes_of(directory / "out"))


def processes_of(out: Path) -> list[tuple[str, int]]:
    """State and id of each process that has a path below the directory among its arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, ValueError):
            continue
        if os.fsencode(out / "data") in words or os.fsencode(out / "workload") in words:
            found.append((state, int(entry.name)))
    return found


def end_all(runner: "subprocess.Popen[bytes]", directory: Path) -> None:
    if runner.poll() is None:
        runner.kill()
        runner.wait()
    chaos("heal", "--out", str(directory / "out"))
    for _, pid in processes_of(directory / "out"):
        os.kill(pid, signal.SIGKILL)
