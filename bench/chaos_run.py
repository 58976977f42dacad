"""What the benches of chaos experiments share: their options, and one run of an experiment."""

import argparse
import shlex
from pathlib import Path

import msgspec
from tidemark_chaos.environments.chaos_environment import ChaosEnvironment
from tidemark_chaos.faults.local_faults import Cluster, LocalFaults
from tidemark_chaos.heal_journal import HealJournal, heal
from tidemark_chaos.runner import ChaosRun, Observations
from tidemark_chaos.spec import (
    ChaosExperiment,
    InvalidExperiment,
    parse_experiment,
    with_duration,
)
from tidemark_client.errors import CommandFailed


def add_options(parser: argparse.ArgumentParser, out: Path) -> None:
    parser.add_argument("-f", "--file", type=Path, default=Path("examples/chaos/peers.yaml"))
    parser.add_argument("--seed", type=int, help="instead of the file's")
    parser.add_argument("--duration", help="instead of the file's")
    parser.add_argument("--rounds", type=int, help="instead of the file's")
    parser.add_argument("--out", type=Path, default=out)


def words_of(options: argparse.Namespace, seed: int) -> str:
    """The options that repeat a run."""
    words = ["-f", str(options.file), "--seed", str(seed)]
    if options.duration:
        words += ["--duration", options.duration]
    if options.rounds:
        words += ["--rounds", str(options.rounds)]
    return shlex.join(words)


def read_experiment(options: argparse.Namespace) -> ChaosExperiment:
    """Raises CommandFailed."""
    try:
        experiment = parse_experiment(options.file.read_text(encoding="utf-8"))
        if options.duration:
            experiment = with_duration(experiment, options.duration)
    except (OSError, InvalidExperiment) as error:
        raise CommandFailed(str(error)) from error
    if options.rounds:
        spec = msgspec.structs.replace(experiment.spec, rounds=options.rounds, duration=None)
        experiment = msgspec.structs.replace(experiment, spec=spec)
    return experiment


def healed_directory(path: Path) -> Path:
    """Create it, and heal what a killed run left there."""
    out = path.resolve()
    out.mkdir(parents=True, exist_ok=True)
    heal(out, print)
    return out


async def play(
    experiment: ChaosExperiment,
    seed: int,
    environment: ChaosEnvironment,
    cluster: Cluster,
    journal: HealJournal,
) -> Observations:
    """Run it by signals; `environment` and `cluster` are two sides of one thing."""

    def tell(text: str) -> None:
        print(text, flush=True)

    tell(f"{experiment.metadata.name}: seed {seed}. {environment.opening}")
    try:
        faults = LocalFaults(cluster, journal)
        return await ChaosRun(experiment, seed, environment, faults, tell).run()
    finally:
        journal.close()
