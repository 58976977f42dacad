"""What a full collection has left is not looked at by the next one."""

import gc
from collections.abc import Iterator

import pytest
from tidemark_operator.manager import garbage


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield
    gc.callbacks[:] = callbacks
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_what_stays_is_looked_at_once() -> None:
    garbage.check_retained_once()
    garbage.check_retained_once()
    kept = [[number] for number in range(1000)]
    gc.collect()
    assert gc.get_freeze_count() > len(kept)
    assert len(gc.get_objects()) < 1000


def test_a_cycle_that_is_garbage_by_then_is_freed() -> None:
    garbage.check_retained_once()
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    assert gc.collect() >= 1
