"""`make sim-mutants`: each guard removed once; which seed, and which test, notices it?

Writes tests/mutation/mutants.md. The seed that noticed last time (mutant_seeds.json) is tried
first, then those from 1 on, in the mutant's profile. The seed that noticed runs once more without
the mutant, as control: if it breaks something then too, it says nothing of the mutant, and the row
is refused. The named test is run with and without the mutant. Exit code 1 when a profile or a test
does not notice its mutant, or a control fails. With `--only` the rows of those mutants are renewed,
the others stay as they were.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest
from rich.console import Console

from tests.model.search import begun_in, explored
from tests.mutation.injected_bugs import INJECTED_BUGS
from tests.mutation.mutant import Mutant, injected
from tests.mutation.mutants import MUTANTS, mutant_of
from tests.simulation.engine.arguments import at_least
from tests.simulation.engine.campaign import results_of
from tests.simulation.engine.run import RunResult, run_seed
from tests.simulation.faults.fault_profiles import seconds_of

MOST_SEEDS = 200
TABLE = Path(__file__).with_name("mutants.md")
SEEDS = Path(__file__).with_name("mutant_seeds.json")
ROOT = Path(__file__).parents[2]
TESTS_FAILED = 1  # pytest's exit code: not for a test that is not found


@dataclass(frozen=True, slots=True)
class MutationResult:
    mutant: Mutant
    violation: str  # the invariant; "" if no seed noticed
    seed: int  # that noticed, -1 if none did
    tried: int  # so many seeds did not
    search: str  # the invariant that the exhaustive search saw broken; "" if it was not asked
    is_tested: bool  # the named test fails with it and passes without

    @property
    def is_caught(self) -> bool:
        """A fault profile that notices nothing any more has gone blind, whatever the test says."""
        is_blind = bool(self.mutant.profile) and not (self.violation or self.search)
        return self.is_tested and not is_blind

    @property
    def noticed_by(self) -> str:
        if self.violation:
            return self.violation
        if self.search:
            return f"{self.search}, exhaustive search"
        if self.mutant.pair:
            return f"its other half: *{self.mutant.pair}*"
        if not self.mutant.profile:
            return f"not tried: {self.mutant.why_no_seed}"
        return f"no seed of {self.tried}"


class ControlFails(Exception):
    """Without any mutant the seed breaks a promise: a defect of the product or of a judge."""


def run_mutated(seed: int, name: str) -> RunResult:
    """In any process: what is planted is gone with the context."""
    mutant = mutant_of(name)
    with injected(mutant):
        return run_seed(seed, seconds_of(mutant.profile), mutant.profile)


def check_control(seed: int, mutant: Mutant) -> None:
    """Raises ControlFails."""
    result = run_seed(seed, seconds_of(mutant.profile), mutant.profile)
    if result.violation is not None:
        broken = ": ".join(result.violation)
        raise ControlFails(f"seed {seed} of {mutant.profile!r} without the mutant: {broken}")


def known_seeds() -> dict[str, int]:
    """By mutant: the seed that noticed it when the table was last written."""
    found: dict[str, int] = json.loads(SEEDS.read_text())
    return found


def hunt(mutant: Mutant, jobs: int, most_seeds: int, known: int | None) -> tuple[str, int, int]:
    """(invariant, seed, seeds that noticed nothing). ("", -1, ...) when none did.

    Raises ControlFails."""
    if not mutant.profile:
        return "", -1, 0
    if known is not None:
        result = run_mutated(known, mutant.name)
        if result.violation is not None:
            check_control(known, mutant)
            return result.violation[0], known, known - 1
    tried = 0
    work = partial(run_mutated, name=mutant.name)
    for result in results_of(range(1, most_seeds + 1), jobs, work):
        if result.violation is not None:
            check_control(result.seed, mutant)
            return result.violation[0], result.seed, tried
        tried += 1
    return "", -1, tried


def searched(mutant: Mutant) -> str:
    """The invariant, "" when no search looks for it."""
    for bug in INJECTED_BUGS:
        if bug.name == mutant.search:
            with bug.injected():
                return explored(begun_in(bug.situation), bug.bounds).broken.partition(":")[0]
    return ""


def tests_pass(nodes: Sequence[str]) -> bool:
    """Without any mutant."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", *nodes]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


def fails_test(mutant: Mutant) -> bool:
    """In a process of its own: the test's modules are imported with the mutant planted."""
    child = get_context("fork").Process(target=_run_test_silently, args=(mutant.name,))
    child.start()
    child.join()
    return child.exitcode == TESTS_FAILED


def _run_test_silently(name: str) -> None:
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
        os.dup2(nowhere.fileno(), sys.stderr.fileno())
    gc.enable()  # a search may have turned it off
    sys.exit(run_test_under(name))


def run_test_under(name: str) -> int:
    mutant = mutant_of(name)
    with injected(mutant):
        return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", mutant.test]))


def row(result: MutationResult) -> str:
    mutant = result.mutant
    seed = str(result.seed) if result.violation else "-"
    test = f"`{mutant.test.removeprefix('tests/')}`" if result.is_tested else "**none**"
    return (
        f"| {mutant.rule} | {mutant.name} | `{mutant.guards}` | {mutant.profile or '-'} |"
        f" {result.noticed_by} | {seed} | {test} |"
    )


def known_rows(text: str) -> dict[str, str]:
    """By mutant, of a table as it was written before."""
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    return {line.split(" | ")[1]: line for line in rows}


def table(rows: Iterable[str]) -> str:
    lines = [
        "# Guards removed, and what noticed",
        "",
        "Generated by `make sim-mutants`. Each row is one guard weakened in the test's process at",
        "its anchor in the code (`# guard: <name> (<rule>)`):",
        "what the simulator's judges said, at which seed in that profile (`fault_profiles.py`; "
        "the last",
        "known one is tried first, then 1, 2, 3 and so on; without the mutant that seed breaks",
        "nothing), and the test that fails with it planted and passes without. Of a pair of",
        "guards either alone keeps the promise:",
        "it is removed as one, and its halves say so. *Exhaustive search*: every order of a few",
        "moves of a world of three replicas finds it (`tests/mutation/injected_bugs.py`).",
        "",
        "| guard or rule | what is no longer done | anchor | fault profile | noticed by | seed"
        " | test that fails |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += rows
    return "\n".join(lines) + "\n"


def hunt_all_ways(mutant: Mutant, jobs: int, most_seeds: int, known: int | None) -> MutationResult:
    """By seeds, by the exhaustive search where none noticed, and by the named test."""
    violation, seed, tried = hunt(mutant, jobs, most_seeds, known)
    search = "" if violation else searched(mutant)
    return MutationResult(mutant, violation, seed, tried, search, fails_test(mutant))


def renew(found: Sequence[MutationResult], known: dict[str, int]) -> None:
    """The table and the seeds; what was not looked for stays."""
    rows = known_rows(TABLE.read_text()) | {each.mutant.name: row(each) for each in found}
    TABLE.write_text(table(rows[mutant.name] for mutant in MUTANTS if mutant.name in rows))
    renewed = {each.mutant.name for each in found}
    seeds = {name: seed for name, seed in known.items() if name not in renewed}
    seeds |= {each.mutant.name: each.seed for each in found if each.violation}
    present = [mutant.name for mutant in MUTANTS if mutant.name in seeds]
    SEEDS.write_text(json.dumps({name: seeds[name] for name in present}, indent=1) + "\n")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--jobs", type=at_least(1), default=os.cpu_count() or 1, help="processes (one a processor)"
    )
    parser.add_argument(
        "--seeds", type=at_least(1), default=MOST_SEEDS, help=f"at most, each ({MOST_SEEDS})"
    )
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    parser.add_argument("--under", default="", help="run a mutant's test with it planted")
    options = parser.parse_args(arguments)
    if options.under:
        if options.under not in {mutant.name for mutant in MUTANTS}:
            parser.error(f"no mutant is named {options.under!r}: see tests/mutation/mutants.md")
        return run_test_under(options.under)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    chosen = [mutant for mutant in MUTANTS if options.only in mutant.name]
    if not chosen:
        parser.error(f"no mutant's name contains {options.only!r}: see tests/mutation/mutants.md")
    if not tests_pass(sorted({mutant.test for mutant in chosen})):
        console.print("the tests named for mutants fail without any: mend them first")
        return 1
    known = known_seeds()
    found, refused = [], 0
    for mutant in chosen:
        try:
            result = hunt_all_ways(mutant, options.jobs, options.seeds, known.get(mutant.name))
        except ControlFails as failure:
            console.print(f"{mutant.name}: REFUSED, {failure}")
            refused += 1
            continue
        found.append(result)
        at = f" at seed {result.seed}" if result.violation else ""
        test = "fails" if result.is_tested else "PASSES"
        console.print(f"{mutant.name}: {result.noticed_by}{at}; test {test}")
    renew(found, known)
    return 0 if not refused and all(result.is_caught for result in found) else 1


if __name__ == "__main__":
    sys.exit(main())
