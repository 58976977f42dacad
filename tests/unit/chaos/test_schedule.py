"""The schedule is a function of the experiment and the seed."""

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tidemark_chaos.schedule import PlannedFault, schedule
from tidemark_chaos.spec import ChaosExperiment, FaultName, parse_experiment

IN_TURN = """
apiVersion: tidemark.dev/v1alpha1
kind: ChaosExperiment
metadata: {name: one}
spec:
  duration: 1h
  order: random
  quiet: 2s
  faults:
  - {kind: kill}
  - {kind: pause, for: 4s, target: {role: follower, partition: 2}}
  - {kind: terminate}
"""
TIMED = """
apiVersion: tidemark.dev/v1alpha1
kind: ChaosExperiment
metadata: {name: one}
spec:
  duration: 100s
  faults:
  - {kind: kill, every: 20s}
  - {kind: pause, for: 4s, at: 50s}
"""
SEEDS = st.integers(0, 2**63)


def first(experiment: ChaosExperiment, seed: int, count: int = 30) -> list[PlannedFault]:
    return list(itertools.islice(schedule(experiment.spec, seed), count))


@given(seed=SEEDS)
def test_a_seed_has_one_schedule(seed: int) -> None:
    for text in (IN_TURN, TIMED):
        experiment = parse_experiment(text)
        assert first(experiment, seed) == first(parse_experiment(text), seed)
        assert first(experiment, seed)[:3] == first(experiment, seed, 3)


def test_other_seeds_have_other_schedules() -> None:
    experiment = parse_experiment(IN_TURN)
    assert len({tuple(first(experiment, seed)) for seed in range(20)}) == 20


@given(seed=SEEDS)
def test_in_random_order_each_fault_of_the_file_is_played_before_one_repeats(seed: int) -> None:
    planned = first(parse_experiment(IN_TURN), seed)
    assert [fault.number for fault in planned] == list(range(1, 31))
    for turn in _threes(planned):
        kinds = Counter(fault.kind for fault in turn)
        assert kinds == {FaultName.KILL: 1, FaultName.PAUSE: 1, FaultName.TERMINATE: 1}
    assert all(1.0 <= fault.quiet_seconds <= 3.0 for fault in planned)
    assert {fault.partition for fault in planned if fault.kind is FaultName.PAUSE} == {2}


@given(seed=SEEDS)
def test_times_of_repeated_faults_vary_and_never_overlap(seed: int) -> None:
    planned = first(parse_experiment(TIMED), seed)
    times = [fault.at_seconds or 0.0 for fault in planned]
    assert [fault.kind.value for fault in planned] == ["kill", "kill", "pause", "kill", "kill"]
    assert times[2] == 50.0
    for fault, begin, following in zip(planned, times, [*times[1:], 100.0], strict=True):
        assert begin + fault.away_seconds <= following


def _threes(planned: list[PlannedFault]) -> list[list[PlannedFault]]:
    return [planned[place : place + 3] for place in range(0, len(planned), 3)]
