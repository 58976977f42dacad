"""Reasons that end a wait for a topic are reasons that the operator gives."""

from pathlib import Path

from tidemark_operator import reconcile
from tidemark_protocol.condition_reasons import LASTING_REASONS


def test_each_lasting_reason_is_given_somewhere() -> None:
    directory = Path(str(reconcile.__file__)).parent
    text = "".join(path.read_text() for path in directory.rglob("*.py"))
    assert [reason for reason in sorted(LASTING_REASONS) if f'"{reason}"' not in text] == []
