"""Runs in which a judge was wrong, whole: nothing was broken in them, and they say so."""

import pytest

from tests.simulation.engine.run import run_seed


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(10000635, id="the run's own kill is no fault"),
        pytest.param(11001072, id="sent again after its topic was made anew"),
        pytest.param(11002659, id="it committed in the event in which it was deposed"),
        pytest.param(12000488, id="it heard of its epoch after its successor had committed"),
        pytest.param(12001229, id="who committed first had a batch damaged"),
        pytest.param(13000175, id="a log from before two elections without proof"),
        pytest.param(42122, id="a bit flip had moved the time of a record"),
        pytest.param(44006816, id="a flipped leader epoch that nobody had looked at"),
        pytest.param(44005395, id="the last reader met a leader that was just elected"),
        pytest.param(8400389, id="a stolen token that the API server still found valid"),
        pytest.param(43025, id="a compacted log was dropped and began anew at its end"),
    ],
)
def test_a_judge_that_was_misled_is_not_any_more(seed: int) -> None:
    """As long as the seed draws the same run; then it is a seed like others."""
    result = run_seed(seed)
    assert result.violation is None, result.violation
