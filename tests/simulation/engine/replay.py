"""`make sim-replay SEED=n`: a readable transcript of one run, a picture, and its fewest faults.

Writes build/sim/seed-n.txt and build/sim/seed-n.svg. With --shrink faults are dropped as long as
the run fails the same way, and the transcript is of what is left.
"""

import argparse
import inspect
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.simulation.checks.coverage_rows import ended_early, waived
from tests.simulation.engine.arguments import PROFILES, at_least, profile, seconds
from tests.simulation.engine.picture import Mark, ReplicaSample, Sample, picture
from tests.simulation.engine.run import SAFETY_SECONDS, Run, RunPlan, RunResult
from tests.simulation.engine.shrinker import shrink
from tests.simulation.faults.fault_profiles import seconds_of
from tests.simulation.faults.faults import ACTS
from tests.support.interrupts import EXIT_INTERRUPTED

SAMPLE_US = 20_000


class Recorder:
    """Looks at the replicas every now and then of the world's time."""

    def __init__(self, run: Run) -> None:
        self.samples: list[Sample] = []
        self._run = run
        self._next_us = 0
        run.on_event = self.look

    def look(self) -> None:
        now_us = self._run.cluster.now_us
        if now_us < self._next_us:
            return
        self._next_us = now_us + SAMPLE_US
        replicas: dict[tuple[str, int], ReplicaSample] = {}
        for broker in self._run.watched.live_brokers():
            for replica in broker.partitions.replicas:
                name = f"{replica.topic}-{replica.partition}"
                replicas[name, broker.broker_id] = ReplicaSample(
                    replica.role,
                    replica.leader_epoch,
                    replica.high_watermark,
                    replica.log.log_end_offset,
                )
        self.samples.append(Sample(now_us, replicas))


def replay(plan: RunPlan) -> tuple[RunResult, str]:
    """The run again, with its transcript kept; and its picture."""
    run = Run(replace(plan, keeps_trace=True, has_logs=True))
    recorder = Recorder(run)
    result = run.go()
    faults = ((at, what) for at, who, what in result.trace if who == "fault")
    marks = [Mark(now_us, with_names(what)) for now_us, what in faults]
    if result.violation is not None:
        marks.append(Mark(result.simulated_us, f"{result.violation[0]}: {result.violation[1]}"))
    title = f"seed {plan.seed}: " + ("no violation" if not result.violation else "violation")
    title += "".join(f"; {each}" for each in not_checked(result))
    return result, picture(title, recorder.samples, marks)


def with_names(fault: str) -> str:
    """`flip_bit 2` as `flip_bit number=2`: what the numbers are is in the fault's code only."""
    kind, *values = fault.split()
    names = list(inspect.signature(ACTS[kind]).parameters)[1:] if kind in ACTS else []
    if len(names) != len(values):  # "healed", or what a fault came upon
        return fault
    return " ".join((kind, *map("=".join, zip(names, values, strict=True))))


def not_checked(result: RunResult) -> Iterator[str]:
    """What "no violation" does not say: promises that were waived, a run that ended early."""
    for row in sorted(result.coverage):
        if row.endswith(waived("")) or row.startswith(ended_early("")):
            yield row


def transcript(result: RunResult) -> str:
    lines = [f"seed {result.seed}", f"options: {result.options}", ""]
    for now_us, who, what in result.trace:
        reported = with_names(what) if who == "fault" else what
        lines.append(f"{now_us / 1e6:11.6f}  {who:<14} {reported}")
    lines += ["", f"digest {result.digest}, {result.events} events"]
    if result.violation is None:
        lines.append("no violation")
    else:
        lines.append(f"VIOLATION {result.violation[0]}: {result.violation[1]}")
    return "\n".join((*lines, *not_checked(result))) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, epilog=PROFILES)
    parser.add_argument("--seed", type=at_least(0), required=True)
    parser.add_argument("--seconds", type=seconds, help="of faults; as make sim has it, else")
    parser.add_argument("--profile", default="", metavar="NAME", type=profile(), help="only that")
    parser.add_argument("--shrink", action="store_true", help="drop faults that are not needed")
    parser.add_argument("--out", type=Path, default=Path("build/sim"))
    options = parser.parse_args(arguments)
    usual = seconds_of(options.profile) if options.profile else SAFETY_SECONDS
    plan = RunPlan(options.seed, options.seconds or usual, profile=options.profile)
    try:
        return _replay_into(options.out, plan, shrinks=options.shrink)
    except KeyboardInterrupt:
        sys.stdout.write(f"seed {options.seed}: interrupted, nothing written\n")
        return EXIT_INTERRUPTED


def _replay_into(folder: Path, plan: RunPlan, *, shrinks: bool) -> int:
    if shrinks:
        first = Run(plan).go()
        if first.violation is None:
            sys.stdout.write(f"seed {plan.seed}: no violation, nothing to shrink\n")
            return 0
        plan = replace(plan, faults=shrink(plan, first.violation[0]))
    result, drawn = replay(plan)
    folder.mkdir(parents=True, exist_ok=True)
    text_path = folder / f"seed-{plan.seed}.txt"
    text_path.write_text(transcript(result))
    picture_path = text_path.with_suffix(".svg")
    picture_path.write_text(drawn)
    said = "no violation" if result.violation is None else ": ".join(result.violation)
    lines = [f"seed {plan.seed}: {said}", *not_checked(result)]
    lines += [
        f"{now_us / 1e6:11.6f} s  {with_names(what)}"
        for now_us, who, what in result.trace
        if who == "fault"
    ]
    lines += [f"transcript: {text_path}", f"picture:    {picture_path}"]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if result.violation is not None else 0


if __name__ == "__main__":
    sys.exit(main())
