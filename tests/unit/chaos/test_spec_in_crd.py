"""crds/chaosexperiments.yaml has the fields, defaults, limits and sentences of spec.py."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tidemark_chaos.spec import (
    DURATION,
    LASTING,
    OF_THE_CONTROLLER,
    OF_THE_NETWORK,
    ExperimentSpec,
    FaultName,
    InvalidExperiment,
    parse_experiment,
)
from tidemark_operator.api.schemas import apply_defaults

ROOT = Path(__file__).parents[3]
CRD = yaml.safe_load((ROOT / "crds/chaosexperiments.yaml").read_text())
IN_CRD = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
TEXT = " ".join((ROOT / "crds/chaosexperiments.yaml").read_text().split())
# The engine fills these in: in the CRD a default would stand on every fault, also a wrong one.
FILLED_BY_THE_ENGINE = {"faults[].from", "faults[].direction"}
DURATIONS = {
    *("duration", "quiet", "recoverWithin", "steadyState.for", "steadyState.within"),
    *("faults[].at", "faults[].every", "faults[].for", "faults[].delay"),
}
# CEL knows no sums of what is typed as text, and a schema no exclusive lower bound as a number.
NUMBERS = ("minimum", "maximum", "exclusiveMinimum")
COMPARED = ("enum", "maxLength", "maxItems", "additionalProperties", *NUMBERS)


def in_spec() -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Each field of the structs: its place, its JSON schema, and whether it is required."""
    schema = msgspec.json.schema(ExperimentSpec)

    def resolved(node: dict[str, Any]) -> dict[str, Any]:
        if "anyOf" in node:
            (some,) = [each for each in node["anyOf"] if each != {"type": "null"}]
            rest = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
            return resolved({**some, **rest})
        if "$ref" in node:
            found = schema["$defs"][node["$ref"].rpartition("/")[2]]
            return {**found, **{key: value for key, value in node.items() if key != "$ref"}}
        return node

    def walk(node: dict[str, Any], prefix: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
        for name, child in node.get("properties", {}).items():
            child = resolved(child)
            yield f"{prefix}{name}", child, name in node.get("required", ())
            yield from walk(child, f"{prefix}{name}.")
            if "items" in child:
                yield from walk(resolved(child["items"]), f"{prefix}{name}[].")

    yield from walk(resolved(schema), "")


def in_crd() -> Iterator[tuple[str, dict[str, Any], bool]]:
    def walk(node: dict[str, Any], prefix: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
        for name, child in node.get("properties", {}).items():
            yield f"{prefix}{name}", child, name in node.get("required", ())
            yield from walk(child, f"{prefix}{name}.")
            yield from walk(child.get("items", {}), f"{prefix}{name}[].")

    yield from walk(IN_CRD, "")


SPEC = {place: (node, required) for place, node, required in in_spec()}
STORED = {place: (node, required) for place, node, required in in_crd()}


def test_the_crd_has_the_same_fields() -> None:
    assert STORED.keys() == SPEC.keys()
    assert {place for place, (_, needed) in STORED.items() if needed} == {
        place for place, (_, needed) in SPEC.items() if needed
    }


@pytest.mark.parametrize("place", sorted(SPEC))
def test_a_field_has_the_same_type_default_and_limits(place: str) -> None:
    (spec, _), (stored, _) = SPEC[place], STORED[place]
    assert stored["type"] == spec.get("type", "string")  # an enum says no type in its schema
    assert stored.get("description"), "without a description"
    if stored["type"] == "object" and "additionalProperties" not in stored:
        assert stored["default"] == {}
    elif place not in FILLED_BY_THE_ENGINE:
        assert stored.get("default") == spec.get("default")
    if place in DURATIONS:
        return
    limits = dict(spec)
    if "exclusiveMinimum" in limits:  # as Kubernetes says it
        limits |= {"minimum": limits["exclusiveMinimum"], "exclusiveMinimum": True}
    for name in NUMBERS:
        assert stored.get(name) == limits.get(name), name
    if place not in ("pool", "target.topic"):
        for name in ("enum", "maxLength", "maxItems"):
            if name in limits:
                assert sorted_or_same(stored.get(name)) == sorted_or_same(limits[name]), name
    if "pattern" in limits:
        assert stored["pattern"] == limits["pattern"]


def sorted_or_same(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value


@pytest.mark.parametrize("place", sorted(DURATIONS))
@pytest.mark.parametrize(
    "text", ["90s", "1m30s", "500ms", "2.5s", "1h", "90", "1 s", "s", "-1s", "1m1h", "1.5m", "10"]
)
def test_a_duration_reads_as_in_the_engine(place: str, text: str) -> None:
    pattern = STORED[place][0]["pattern"]
    assert (re.fullmatch(pattern, text) is None) == (DURATION.fullmatch(text) is None)


def test_rules_about_kinds_name_those_of_the_engine() -> None:
    (faults,) = [node for place, (node, _) in STORED.items() if place == "faults"]
    rules = [each["rule"] for each in faults["items"]["x-kubernetes-validations"]]
    once = {name.value for name in set(FaultName) - LASTING}
    for rule in (each for each in rules if "self.__for__" in each):
        assert set(re.findall("'([a-z-]+)'", rule)) == once
    (network,) = [each for each in rules if "self.direction" in each]
    assert set(re.findall("'([a-z-]+)'", network)) == {*map(str, OF_THE_NETWORK), "both"}
    (controller,) = [each for each in rules if "'controller'" in each]
    assert set(re.findall("'([a-z-]+)'", controller)) == {
        *map(str, OF_THE_CONTROLLER),
        "controller",
    }


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"duration": "1s"}, "expected either duration or rounds"),
        (
            {"faults": [{"kind": "kill", "at": "1s"}]},
            "faults with at or every have their own times; use duration",
        ),
        (
            {
                "rounds": None,
                "duration": "60s",
                "faults": [{"kind": "kill", "at": "1s"}, {"kind": "kill"}],
            },
            "expected either at or every, because other faults have a time too",
        ),
        (
            {"faults": [{"kind": "pause"}]},
            "without a time cannot be undone, because it never ends: add for",
        ),
        (
            {"faults": [{"kind": "kill", "for": "1s"}]},
            "happens once, brokers start again by themselves: remove for",
        ),
        (
            {"faults": [{"kind": "network-delay", "for": "1s"}]},
            "delay: expected with kind network-delay or disk-slow, and only there",
        ),
        (
            {"faults": [{"kind": "network-loss", "for": "1s"}]},
            "loss: expected with kind network-loss, and only there",
        ),
        (
            {"faults": [{"kind": "bandwidth", "for": "1s"}]},
            "bytesPerSecond: expected with kind bandwidth, and only there",
        ),
        (
            {"faults": [{"kind": "kill", "from": ["peers"]}]},
            "has no from and no direction; remove them",
        ),
        (
            {"faults": [{"kind": "kill-twice", "target": {"role": "controller"}}]},
            "cannot be done to the controller; choose kill, terminate or pause",
        ),
        (
            {"faults": [{"kind": "kill", "target": {"role": "all", "partition": 0}}]},
            "is not of a partition; remove it",
        ),
        ({"faults": [{"kind": "kill", "target": {"count": 2}}]}, "has no count; remove it"),
        (
            {"workload": {"acks": "mixed", "idempotence": False}},
            "acks mixed has idempotent producers too; remove idempotence: false",
        ),
        (
            {"workload": {"acks": "1"}},
            "an idempotent producer needs acks all; set acks: all or idempotence: false",
        ),
    ],
)
def test_a_rule_has_the_engines_sentence(spec: dict[str, Any], words: str) -> None:
    document = {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "ChaosExperiment",
        "metadata": {"name": "one"},
        "spec": {"rounds": 1, "faults": [{"kind": "kill"}], **spec},
    }
    with pytest.raises(InvalidExperiment) as caught:
        parse_experiment(msgspec.json.encode(document).decode())
    assert words in "; ".join(caught.value.problems)
    assert words in TEXT


def test_a_stored_object_with_the_crds_defaults_is_read_by_the_engine() -> None:
    for path in sorted((ROOT / "examples/chaos").glob("*.yaml")):
        text = path.read_text()
        stored = apply_defaults(yaml.safe_load(text))
        parsed = parse_experiment(msgspec.json.encode(stored).decode())
        assert parsed.spec == parse_experiment(text).spec
