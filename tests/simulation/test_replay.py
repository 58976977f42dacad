"""A replay explains itself, and refuses what is typed wrong in a sentence."""

from pathlib import Path

import pytest

from tests.simulation.engine import replay
from tests.simulation.engine.replay import not_checked, with_names
from tests.simulation.engine.run import RunResult
from tests.simulation.faults.faults import ACTS


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["--seed", ""], "--seed: expected a whole number of at least 0, found nothing"),
        (["--seed", "1", "--seconds", "2"], "expected seconds, at least 3, found '2'"),
        (["--seed", "1", "--profile", "all"], "expected a fault profile, found 'all'"),
    ],
)
def test_wrong_arguments_are_refused_with_what_was_expected(
    arguments: list[str], reported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        replay.main(arguments)
    assert ended.value.code == 2
    assert reported in capsys.readouterr().err


def test_numbers_of_a_fault_have_names() -> None:
    assert with_names("freeze_broker 0 2528578") == "freeze_broker number=0 for_us=2528578"
    assert with_names("healed") == "healed"
    assert with_names("power as 2 joins orders-0") == "power as 2 joins orders-0"
    assert "healed" not in ACTS


def test_a_replay_says_what_was_waived_and_where_both_files_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = RunResult(1, "options", None, 1, 1, 0.1)
    result.coverage.update(("L1 kept", "L3 not kept after flipped bits", "ended early: a reason"))
    assert list(not_checked(result)) == ["L3 not kept after flipped bits", "ended early: a reason"]
    assert replay.main(["--seed", "3", "--seconds", "3", "--out", str(tmp_path)]) == 0
    reported = capsys.readouterr().out
    for path in (tmp_path / "seed-3.txt", tmp_path / "seed-3.svg"):
        assert str(path) in reported
        assert path.is_file()
    assert "   3.000000 s  healed" in reported
    assert "lose_all_power off_us=" in (tmp_path / "seed-3.txt").read_text()
