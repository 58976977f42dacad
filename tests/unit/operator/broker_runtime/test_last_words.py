"""What a terminal is told of a broker that ended by itself."""

from pathlib import Path

import pytest
from tidemark_operator.broker_runtime.processes import TAIL_BYTES, last_words

REFUSED = '{"level": "error", "message": "registration rejected", "reason": "another cluster"}'


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([REFUSED], "registration rejected: another cluster"),
        ([REFUSED, '{"level": "info", "message": "serving"}'], ""),
        (['{"level": "error", "message": "defect"}'], "defect"),
        (["x" * TAIL_BYTES, REFUSED], "registration rejected: another cluster"),
        (["Killed"], ""),
        (["[1]"], ""),
        ([], ""),
    ],
)
def test_only_an_error_at_the_very_end_is_told(lines: list[str], said: str, tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_text("".join(f"{line}\n" for line in lines))
    assert last_words(log) == said


def test_a_log_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert last_words(tmp_path / "none.log") == ""
