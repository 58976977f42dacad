"""A world for one story, closed after it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.reconcile_harness import Story, World


@pytest.fixture
def tell(tmp_path: Path) -> Callable[[Story], None]:
    def run(story: Story) -> None:
        world = World(tmp_path)
        try:
            asyncio.run(story(world))
        finally:
            world.store.close()

    return run
