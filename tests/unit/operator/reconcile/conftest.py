"""A world for one story, closed after it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.reconcile_harness import Experiment, World


@pytest.fixture
def tell(tmp_path: Path) -> Callable[[Experiment], None]:
    def run(story: Experiment) -> None:
        world = World(tmp_path)
        try:
            asyncio.run(story(world))
        finally:
            world.store.close()

    return run
