"""Export the reconcile passes of the operator: how many, how long, which run now, which wait."""

from collections.abc import Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from tidemark_operator.reconcile.work_queue import PASS_BUCKETS_SECONDS, WorkQueue


class ReconcileCollector(Collector):
    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue

    def collect(self) -> Iterator[Metric]:
        passes = CounterMetricFamily(
            "tidemark_reconcile_passes", "Finished passes over objects", labels=["kind"]
        )
        errors = CounterMetricFamily(
            "tidemark_reconcile_errors", "Passes that failed and are retried", labels=["kind"]
        )
        duration = HistogramMetricFamily(
            "tidemark_reconcile_duration_seconds", "Duration of passes", labels=["kind"]
        )
        waiting = GaugeMetricFamily(
            "tidemark_reconcile_queue_length", "Objects that wait for a pass", labels=["kind"]
        )
        for kind, statistics in self._queue.statistics().items():
            passes.add_metric([kind], statistics.passes)
            errors.add_metric([kind], statistics.errors)
            duration.add_metric([kind], _cumulated(statistics.buckets), statistics.seconds)
            waiting.add_metric([kind], statistics.waiting)
        running = GaugeMetricFamily(
            "tidemark_reconcile_in_progress_start_time_seconds",
            "Start of a pass that runs now, since the epoch",
            labels=["kind", "namespace", "name"],
        )
        for key, started_s in self._queue.running().items():
            running.add_metric([key.kind, key.namespace, key.name], started_s)
        yield from (passes, errors, duration, waiting, running)


def _cumulated(buckets: list[int]) -> list[tuple[str, float]]:
    bounds = [*map(str, PASS_BUCKETS_SECONDS), "+Inf"]
    return [(bound, float(sum(buckets[: at + 1]))) for at, bound in enumerate(bounds)]
