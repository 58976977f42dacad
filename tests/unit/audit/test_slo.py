"""Objectives are defaults, a file's for all topics, and a file's for some."""

from pathlib import Path

import pytest
from tidemark_audit.slo import BadObjectives, Objectives, Slo, read_slo, slo_of, slo_of_text


def test_an_empty_file_has_the_defaults() -> None:
    assert slo_of_text("") == Slo() == slo_of({})
    assert Slo().of("orders") == Objectives()


def test_the_last_entry_that_matches_a_topic_wins_field_by_field() -> None:
    slo = slo_of_text(
        """
        objectives: {writable: 0.9, coverage: 0.5}
        topics:
          - {topic: "pay-*", objectives: {writable: 0.99, clockSkewSeconds: 5}}
          - {topic: "pay-eu", objectives: {writable: 0.999}}
        """
    )
    found = [slo.of(topic) for topic in ("orders", "pay-us", "pay-eu")]
    assert [each.writable for each in found] == [0.9, 0.99, 0.999]
    assert [each.clock_skew_seconds for each in found] == [1.0, 5.0, 5.0]
    assert {each.coverage for each in found} == {0.5}


def test_patterns_tell_upper_case_from_lower() -> None:
    slo = slo_of({"topics": [{"topic": "Pay", "objectives": {"writable": 0.5}}]})
    assert (slo.of("Pay").writable, slo.of("pay").writable) == (0.5, 0.9999)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("objectives: {writeable: 0.9}", "unknown objective 'writeable'"),
        ("objectives: {writable: 1.1}", "writable: 1.1 is not a share"),
        ("objectives: {writable: -0.1}", "writable: -0.1 is not a limit"),
        ("objectives: {clockSkewSeconds: .nan}", "clockSkewSeconds: nan is not a limit"),
        ("objectives: {writable: often}", "Expected `float`"),
        ("objective: {}", "unknown field"),
        ("topics: [{topic: a}]", "missing required field"),
        ("{", "expected"),
    ],
)
def test_what_cannot_be_an_objective_is_refused_with_a_reason(text: str, words: str) -> None:
    with pytest.raises(BadObjectives, match=words):
        slo_of_text(text)


def test_bounds_of_shares_are_shares_and_limits_may_exceed_one() -> None:
    slo = slo_of({"objectives": {"writable": 1, "coverage": 0, "longestUnderMinIsrSeconds": 1e6}})
    assert (slo.objectives.writable, slo.objectives.coverage) == (1, 0)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "slo.yaml"
    with pytest.raises(BadObjectives, match=r"slo\.yaml"):
        read_slo(path)
    path.write_bytes(b"\xff")
    with pytest.raises(BadObjectives, match=r"slo\.yaml"):
        read_slo(path)
    path.write_text("objectives: {writable: 2}")
    with pytest.raises(BadObjectives, match=r"slo\.yaml: writable: 2"):
        read_slo(path)
