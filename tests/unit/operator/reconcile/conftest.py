"""A world for one story, closed after it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.reconcile_harness import Cluster, Experiment


@pytest.fixture
def tell(tmp_path: Path) -> Callable[[Experiment], None]:
    def run(story: Experiment) -> None:
        cluster = Cluster(tmp_path)
        try:
            asyncio.run(story(cluster))
        finally:
            cluster.store.close()

    return run
