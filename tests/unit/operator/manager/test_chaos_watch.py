"""What the controller of ChaosExperiments watches, and that the chart gives the rights for it."""

import asyncio
import re
from pathlib import Path
from typing import Any

from tidemark_operator.manager.chaos_watch import ChaosWatch
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.resources.chaos_job import job_labels

CHART = Path(__file__).parents[4] / "charts/tidemark/templates/chaos.yaml"


def handlers_of(watch: ChaosWatch) -> dict[str, Any]:
    """By the plural of what they are called for."""
    found = {}
    for handler in watch._registry()._watching.get_all_handlers():
        assert handler.selector is not None
        found[str(handler.selector.any_name or handler.selector.plural)] = handler.fn
    return found


def watch_into(keys: list[WorkKey]) -> ChaosWatch:
    return ChaosWatch(("shop",), on_key=keys.append, on_end=lambda _: None)


def test_an_experiment_and_its_jobs_wake_it() -> None:
    keys: list[WorkKey] = []
    handlers = handlers_of(watch_into(keys))
    asyncio.run(handlers["chaosexperiments"](namespace="shop", name="one"))
    job = {"metadata": {"name": "two-run", "labels": job_labels("two")}}
    asyncio.run(handlers["jobs"](body=job, namespace="shop"))
    asyncio.run(handlers["jobs"](body={"metadata": {"name": "other"}}, namespace="shop"))
    assert keys == [WorkKey("ChaosExperiment", "shop", name) for name in ("one", "two")]


def test_the_chart_allows_every_watch() -> None:
    rules = re.findall(r"resources: \[(.*?)\].*\n +verbs: \[(.*?)\]", CHART.read_text())
    allowed = {name for names, verbs in rules if "watch" in verbs for name in names.split(", ")}
    # Brokers and slices are watched by the Jobs.
    assert allowed == {*handlers_of(watch_into([])), "brokers", "partitionslices"}
