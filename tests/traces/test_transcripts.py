"""Every transcript says what the cores do, breaks no invariant, and names where it comes from."""

import re
from pathlib import Path

import pytest

from tests.support.safety_rules import ELSEWHERE, rules_of_safety
from tests.traces.reader import replayed, transcripts

ROOT = Path(__file__).parents[2]
SOURCE = re.compile(r"^# (S\d+|KIP-\d+|KAFKA-\d+|I\d+|B\d+|safety\.md|L\d+)\b.*: ")


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem)
def test_a_transcript_is_what_the_cores_do(path: Path) -> None:
    text = path.read_text()
    assert SOURCE.match(text), "the first line names its source and says what happens"
    replay = replayed(text)
    assert replay.text == text
    assert replay.broken == ()


def test_every_rule_of_safety_has_a_transcript_or_a_test_by_name() -> None:
    cited = {
        number
        for path in transcripts()
        for number in re.findall(r"\bS(\d+)\b", path.read_text().splitlines()[0])
    }
    rules = rules_of_safety()
    assert rules - cited - set(ELSEWHERE) == set()
    assert cited | set(ELSEWHERE) <= rules, "a rule that docs/design/safety.md does not define"
    for number, (name, function) in ELSEWHERE.items():
        assert f"def {function}(" in (ROOT / name).read_text(), (number, name, function)


def test_there_are_fifty_of_them() -> None:
    assert len(transcripts()) >= 50
