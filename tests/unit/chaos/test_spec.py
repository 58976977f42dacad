"""An experiment file: what it may say, and the sentence for everything else."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tidemark_chaos.faults import pod_faults
from tidemark_chaos.faults.local_faults import impossible
from tidemark_chaos.spec import (
    AbortWhen,
    Direction,
    ExperimentSpec,
    FaultName,
    FaultSpec,
    Guards,
    InvalidExperiment,
    Party,
    Role,
    SteadyState,
    Target,
    Workload,
    parse_experiment,
    seconds,
    windows,
    with_duration,
)


def text_of(**spec: Any) -> str:
    whole = {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "ChaosExperiment",
        "metadata": {"name": "one", "labels": {"team": "a"}},
        "spec": {"rounds": 1, "faults": [{"kind": "kill"}], **spec},
    }
    return msgspec.json.encode(whole).decode()


def problems_of(text: str) -> str:
    with pytest.raises(InvalidExperiment) as caught:
        parse_experiment(text)
    return "\n".join(caught.value.problems)


def timed(*faults: dict[str, Any], **spec: Any) -> str:
    return text_of(**{"rounds": None, "duration": "60s", "faults": list(faults), **spec})


def test_a_short_experiment_has_defaults() -> None:
    spec = parse_experiment(text_of()).spec
    (fault,) = spec.faults
    assert (fault.kind, fault.target.role, spec.pool) == (FaultName.KILL, Role.LEADER, "default")
    assert (spec.workload.acks, spec.workload.idempotence) == ("all", True)
    assert not spec.is_timed


@pytest.mark.parametrize(
    ("text", "length"),
    [("1h", 3600), ("1m30s", 90), ("500ms", 0.5), ("2.5s", 2.5), ("0s", 0)],
)
def test_durations_are_read(text: str, length: float) -> None:
    assert seconds(text) == length


@pytest.mark.parametrize("text", ["", "5", "1d", "s", "-1s", "1s1m", " 1s"])
def test_other_durations_are_not(text: str) -> None:
    with pytest.raises(ValueError):
        seconds(text)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"faults": []}, "spec.faults: expected at least one fault, found none"),
        ({"faults": [{"kind": "kil"}]}, "unknown kind 'kil', did you mean kill? choose from"),
        ({"faults": [{}]}, "spec.faults[0].kind: unknown kind None"),
        ({"faults": ["kill"]}, "spec.faults[0]: expected an object with kind and target"),
        (
            {"faults": [{"kind": "kill", "target": {"role": "boss"}}]},
            "spec.faults[0].target.role: unknown role 'boss'",
        ),
        (
            {"faults": [{"kind": "kill", "fro": "1s"}]},
            "spec.faults[0]: object contains unknown field `fro`",
        ),
        ({"faults": [{"kind": "pause"}]}, "pause without a time cannot be undone"),
        ({"faults": [{"kind": "kill", "for": "1s"}]}, "kill happens once"),
        (
            {"faults": [{"kind": "kill", "target": {"partition": 3}}]},
            "partition 3 does not exist, 'chaos' has 0 to 2",
        ),
        (
            {"faults": [{"kind": "kill", "target": {"topic": "orders"}}]},
            "'orders' does not exist in this experiment",
        ),
        (
            {"faults": [{"kind": "kill", "target": {"role": "all", "partition": 0}}]},
            "the role all is not of a partition",
        ),
        (
            {"faults": [{"kind": "rolling-restart", "target": {"role": "controller"}}]},
            "rolling-restart cannot be done to the controller",
        ),
        (
            {"faults": [{"kind": "kill", "target": {"role": "follower", "count": 3}}]},
            "has 2 followers, not 3",
        ),
        (
            {"faults": [{"kind": "kill", "target": {"role": "follower", "count": 2}}]},
            "2 brokers at the same time are more than guards.maxBrokersAtOnce: 1",
        ),
        (
            {"faults": [{"kind": "kill", "from": ["peers"]}]},
            "kill has no from and no direction; remove them",
        ),
        (
            {"faults": [{"kind": "network-cut", "for": "1s", "from": []}]},
            "from: expected one or each of peers, controller",
        ),
        (
            {"faults": [{"kind": "network-delay", "for": "1s"}]},
            "delay: expected with kind network-delay",
        ),
        (
            {"faults": [{"kind": "disk-slow", "for": "1s"}]},
            "delay: expected with kind network-delay or disk-slow",
        ),
        ({"faults": [{"kind": "bandwidth", "for": "1s"}]}, "bytesPerSecond: expected with kind"),
        (
            {"faults": [{"kind": "network-loss", "for": "1s", "loss": 1}]},
            "spec.faults[0].loss: expected `float` <= 0.9",
        ),
        (
            {"faults": [{"kind": "api-server-outage", "for": "1s"}]},
            "api-server-outage strikes no broker; set target.role to controller",
        ),
        ({"workload": {"acks": "1"}}, "an idempotent producer needs acks all"),
        ({"workload": {"acks": "0"}}, "spec.workload.acks: invalid enum value '0'"),
        ({"workload": {"topic": "a/b"}}, "spec.workload.topic: expected `str` matching regex"),
        ({"guards": {"minInSync": 4}}, "4 replicas can never be in sync"),
        ({"quiet": "soon"}, "spec.quiet: expected a duration such as 90s, 1m30s or 500ms"),
        ({"seed": -1}, "spec.seed: expected `int` >= 0"),
        ({"rounds": None}, "spec: expected either duration or rounds"),
        ({"duration": "5m"}, "spec: expected either duration or rounds"),
        (
            {"faults": [{"kind": "kill", "at": "1s"}]},
            "faults with at or every have their own times; use duration",
        ),
    ],
)
def test_a_wrong_field_has_a_sentence_with_its_place(spec: dict[str, Any], sentence: str) -> None:
    assert sentence in problems_of(text_of(**spec))


def test_problems_of_every_kind_are_named_together() -> None:
    found = problems_of(
        text_of(
            seeds=2,
            quiet="soon",
            guards={"minInSync": 4},
            workload={"acks": "1", "config": {"a": 1}},
            faults=[
                {"kind": "kil", "target": {"role": "boss"}},
                {"kind": "pause"},
                {"kind": "disk-slow", "for": "eternity"},
                {"kind": "network-loss", "loss": 2, "for": "1s"},
            ],
        )
    ).splitlines()
    places = [line.partition(": ")[0] for line in found]
    assert places == [
        "spec.faults[0].kind",
        "spec.faults[0].target.role",
        "spec.faults[3].loss",
        "spec",
        "spec.workload.config",
        "spec.quiet",
        "spec.faults[2].for",
        "spec.faults[1]",
        "spec.faults[2]",
    ]


def test_what_was_not_readable_causes_no_further_problem() -> None:
    for spec in ({"rounds": "many"}, {"faults": "kill"}, {"workload": {"partitions": "x"}}):
        assert len(problems_of(text_of(**spec)).splitlines()) == 1
    no_object = problems_of(text_of().replace('"spec":{', '"spec":[1],"more":{'))
    assert no_object == "spec: expected `object`, got [1]"


def test_an_environment_checks_what_could_be_read() -> None:
    wrong = {"kind": "kil"}
    far = {"kind": "clock-jump", "for": "1s"}
    with pytest.raises(InvalidExperiment) as caught:
        parse_experiment(text_of(faults=[wrong, far]))
    assert caught.value.spec is not None
    (problem,) = impossible(caught.value.spec, 3)
    assert problem.startswith("spec.faults[1].kind: clock-jump is not possible")


def test_faults_that_overlap_are_rejected_with_both_their_places() -> None:
    pause = {"kind": "pause", "at": "10s", "for": "5s"}
    kill = {"kind": "kill", "at": "14s"}
    assert problems_of(timed(pause, kill)) == (
        "spec.faults[1]: at 14 s it overlaps with faults[0], which lasts from 10 s to 15 s;"
        " guards.maxBrokersAtOnce is 1"
    )
    parse_experiment(timed(pause, kill, guards={"maxBrokersAtOnce": 2}))
    parse_experiment(timed(pause, {**kill, "at": "15s"}))


def test_all_brokers_overlap_with_any_other_fault_but_the_controllers() -> None:
    every = {"kind": "kill", "target": {"role": "all"}, "at": "10s"}
    wide = {"maxBrokersAtOnce": 9}
    assert "overlaps" in problems_of(timed(every, {"kind": "kill", "at": "12s"}, guards=wide))
    controller = {"kind": "pause", "target": {"role": "controller"}, "at": "12s", "for": "1s"}
    parse_experiment(timed({"kind": "kill", "at": "10s"}, controller))


def test_a_fault_that_would_outlive_the_experiment_is_rejected() -> None:
    late = {"kind": "pause", "at": "55s", "for": "10s"}
    assert "it would last until 65 s, but the experiment ends after 60 s" in problems_of(
        timed(late)
    )


def test_faults_with_and_without_a_time_do_not_mix() -> None:
    assert "expected either at or every" in problems_of(
        timed({"kind": "kill", "at": "5s"}, {"kind": "kill"})
    )


def test_a_fault_repeats_until_it_would_outlive_the_experiment() -> None:
    spec = parse_experiment(timed({"kind": "kill", "every": "18s"})).spec
    assert windows(spec) == [(18.0, 24.0, 0), (36.0, 42.0, 0), (54.0, 60.0, 0)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "expected one object of kind ChaosExperiment, found 0"),
        ("a: [", "expected YAML"),
        ("[1]", "expected one object of kind ChaosExperiment"),
        ("kind: Topic\napiVersion: tidemark.dev/v1alpha1", "found tidemark.dev/v1alpha1 Topic"),
        ("kind: ChaosExperiment\napiVersion: v1", "found v1 ChaosExperiment"),
    ],
)
def test_other_texts_are_no_experiment(text: str, sentence: str) -> None:
    assert sentence in problems_of(text)


@pytest.mark.parametrize("name", ["", "a/b", "A", "\x1b[31m", "<b>", "a" * 254, "\u202eabc"])
def test_the_name_is_one_of_kubernetes(name: str) -> None:
    text = text_of().replace('"name":"one"', f'"name":{msgspec.json.encode(name).decode()}')
    assert problems_of(text).startswith("metadata.name: expected `str`")


def test_hostile_names_are_quoted_in_part_only() -> None:
    long = problems_of(text_of(faults=[{"kind": "<b>" + "x" * 1000}]))
    assert len(long) < 500


def test_another_duration_takes_the_place_of_rounds_and_is_checked() -> None:
    experiment = with_duration(parse_experiment(text_of(rounds=3)), "20m")
    assert (experiment.spec.rounds, experiment.spec.duration_seconds) == (None, 1200.0)
    with pytest.raises(InvalidExperiment, match=r"spec\.duration: expected a duration"):
        with_duration(experiment, "soon")
    at_a_time = parse_experiment(timed({"kind": "kill", "at": "50s"}))
    with pytest.raises(InvalidExperiment, match="the experiment ends after 40 s"):
        with_duration(at_a_time, "40s")


EXAMPLES = sorted((Path(__file__).parents[3] / "examples/chaos").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_suite_of_the_examples_is_an_experiment_of_its_name(path: Path) -> None:
    experiment = parse_experiment(path.read_text())
    assert experiment.metadata.name == path.stem
    is_on_kind = path.stem in ("quick-on-kind", "kill-leaders")
    if is_on_kind:
        assert pod_faults.impossible(experiment.spec) == []
        assert pod_faults.impossible_in_cluster(experiment.spec) == []
    if path.stem != "quick-on-kind":  # which deletes pods
        assert impossible(experiment.spec, 3) == []


@pytest.mark.parametrize("name", ["full", "network"])
def test_these_suites_play_each_of_their_faults_once(name: str) -> None:
    spec = parse_experiment((EXAMPLES[0].parent / f"{name}.yaml").read_text()).spec
    assert spec.rounds == len(spec.faults)


def test_the_page_names_every_field_kind_and_role() -> None:
    page = (EXAMPLES[0].parents[2] / "docs/operations/chaos.md").read_text()
    structs = (ExperimentSpec, FaultSpec, Target, Workload, SteadyState, Guards, AbortWhen)
    fields = {name for struct in structs for name in struct.__struct_encode_fields__}
    words = {*fields, *FaultName, *Role, *Party, *Direction}
    assert [word for word in sorted(words) if not re.search(rf"`[^`]*\b{word}\b", page)] == []
