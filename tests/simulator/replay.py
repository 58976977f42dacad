"""`make sim-replay SEED=n`: a readable transcript of one run, a picture, and its fewest faults.

Writes build/sim/seed-n.txt and build/sim/seed-n.svg. With --shrink faults are dropped as long as
the run fails the same way, and the transcript is of what is left.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from tests.simulator.picture import Mark, ReplicaSample, Sample, picture
from tests.simulator.run import SAFETY_SECONDS, Run, RunPlan, RunResult
from tests.simulator.shrinker import shrink
from tests.simulator.storms import seconds_of

SAMPLE_US = 20_000


class Recorder:
    """Looks at the replicas every now and then of the world's time."""

    def __init__(self, run: Run) -> None:
        self.samples: list[Sample] = []
        self._run = run
        self._next_us = 0
        run.on_event = self.look

    def look(self) -> None:
        now_us = self._run.world.now_us
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
    marks = [Mark(now_us, what) for now_us, who, what in result.trace if who == "fault"]
    if result.violation is not None:
        marks.append(Mark(result.simulated_us, f"{result.violation[0]}: {result.violation[1]}"))
    title = f"seed {plan.seed}: " + ("no violation" if not result.violation else "violation")
    return result, picture(title, recorder.samples, marks)


def transcript(result: RunResult) -> str:
    lines = [f"seed {result.seed}", f"options: {result.options}", ""]
    lines += [f"{now_us / 1e6:11.6f}  {who:<14} {what}" for now_us, who, what in result.trace]
    lines += ["", f"digest {result.digest}, {result.events} events"]
    if result.violation is None:
        lines.append("no violation")
    else:
        lines.append(f"VIOLATION {result.violation[0]}: {result.violation[1]}")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, help="of faults; as make sim has it, if not given")
    parser.add_argument("--weather", default="", help="of storms.py: nothing but that")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("build/sim"))
    options = parser.parse_args(arguments)
    usual = seconds_of(options.weather) if options.weather else SAFETY_SECONDS
    plan = RunPlan(options.seed, options.seconds or usual, weather=options.weather)
    if options.shrink:
        first = Run(plan).go()
        if first.violation is None:
            sys.stdout.write(f"seed {options.seed}: no violation, nothing to shrink\n")
            return 0
        plan = replace(plan, faults=shrink(plan, first.violation[0]))
    result, drawn = replay(plan)
    options.out.mkdir(parents=True, exist_ok=True)
    text_path = options.out / f"seed-{options.seed}.txt"
    text_path.write_text(transcript(result))
    text_path.with_suffix(".svg").write_text(drawn)
    said = "no violation" if result.violation is None else ": ".join(result.violation)
    faults = "\n".join(f"  {now} {what}" for now, who, what in result.trace if who == "fault")
    sys.stdout.write(f"seed {options.seed}: {said}\n{faults}\n{text_path}\n")
    return 1 if result.violation is not None else 0


if __name__ == "__main__":
    sys.exit(main())
