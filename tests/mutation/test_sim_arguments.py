"""What is typed wrong at the simulator and the search is refused in a sentence."""

from types import ModuleType

import pytest

from tests.model.__main__ import parts_requested_for
from tests.mutation import mutant_hunt
from tests.simulation.engine import runner


@pytest.mark.parametrize(
    ("command", "arguments", "reported"),
    [
        (runner, ["--seeds", "0"], "--seeds: expected a whole number of at least 1, found '0'"),
        (runner, ["--seeds", "few"], "--seeds: expected a whole number of at least 1, found 'few'"),
        (runner, ["--jobs", "0"], "--jobs: expected a whole number of at least 1, found '0'"),
        (runner, ["--first-seed", "-1"], "--first-seed: expected a whole number of at least 0"),
        (runner, ["--profile", "file goes"], "near it: 'files go'"),
        (mutant_hunt, ["--under", "nonsense"], "no mutant is named 'nonsense'"),
        (mutant_hunt, ["--only", "nonsense"], "no mutant's name contains 'nonsense'"),
    ],
)
def test_wrong_arguments_are_refused_with_what_was_expected(
    command: ModuleType, arguments: list[str], reported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    assert reported in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [(["some"], "found 'some'"), (["-1"], "-1"), (["1", "kill,nonsense"], "found 'nonsense'")],
)
def test_the_search_refuses_what_it_does_not_know(
    arguments: list[str], reported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parts_requested_for(arguments)
    assert ended.value.code == 2
    assert reported in capsys.readouterr().err
    (part,) = parts_requested_for(["1", "kill,fetch"])
    assert (part.bounds.faults, part.bounds.kinds) == (1, ("kill", "fetch"))
