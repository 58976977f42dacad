"""A controller tells from its own ticks how long it stood still (S21)."""

import pytest
from tidemark_operator.controller.core.own_stall import OwnStall

INTERVAL_MS = 50


def begun(now_ms: int = 1000) -> OwnStall:
    stall = OwnStall(INTERVAL_MS)
    stall.begin(now_ms)
    return stall


@pytest.mark.parametrize(("late_ms", "stalled_ms"), [(-20, 0), (0, 0), (50, 0), (51, 51)])
def test_a_tick_counts_as_stalled_once_it_is_more_than_an_interval_late(
    late_ms: int, stalled_ms: int
) -> None:
    assert begun().tick(1000 + INTERVAL_MS + late_ms) == stalled_ms


def test_each_tick_is_measured_from_the_one_before() -> None:
    stall = begun()
    assert stall.tick(1000 + INTERVAL_MS + 300) == 300
    assert stall.tick(1000 + 2 * INTERVAL_MS + 300) == 0


def test_the_next_tick_is_overdue_only_after_an_interval() -> None:
    stall = begun()
    assert [stall.late_ms(now_ms) for now_ms in (1000, 1050, 1051, 1400)] == [0, 0, 1, 350]


def test_no_tick_is_late_before_the_first_one_is_due() -> None:
    stall = OwnStall(INTERVAL_MS)
    assert (stall.late_ms(10_000), stall.tick(10_000)) == (0, 0)


def test_a_takeover_forgets_the_ticks_of_an_earlier_term() -> None:
    stall = begun()
    stall.begin(9000)
    assert stall.tick(9000 + INTERVAL_MS) == 0
