"""Passes of the operator are counted by kind, and those that run now say since when."""

import asyncio
import time

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tidemark_operator.reconcile.metrics import ReconcileCollector
from tidemark_operator.reconcile.work_queue import BackOff, WorkKey, WorkQueue
from tidemark_operator.store.object_store import StoreError

from tests.support.promtool import faults_of_metrics
from tests.support.waiting import eventually

FAILS, STUCK = WorkKey("Topic", "shop", "fails"), WorkKey("BrokerPool", "shop", "stuck")
WAITS = WorkKey("BrokerPool", "shop", "waits")


def values(queue: WorkQueue) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(ReconcileCollector(queue))
    text = generate_latest(registry).decode()
    assert faults_of_metrics(text) == ""
    return {
        ",".join((sample.name.removeprefix("tidemark_reconcile_"), *sample.labels.values())): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_pass_that_fails_counts_and_one_that_hangs_says_since_when() -> None:
    async def reconcile(key: WorkKey) -> int | None:
        if key == FAILS:
            raise StoreError("not now")
        await asyncio.Event().wait()
        return None

    async def story() -> None:
        queue = WorkQueue(BackOff(first_delay_ms=60_000))
        assert values(queue)["passes_total,Topic"] == 0
        for key in (FAILS, STUCK, WAITS):
            queue.add(key)
        began_s = time.time()
        work = asyncio.create_task(queue.work(reconcile))
        await eventually(lambda: values(queue)["errors_total,Topic"] == 1)
        found = values(queue)
        assert found["passes_total,Topic"] == 1
        assert found["duration_seconds_bucket,Topic,+Inf"] == 1
        assert found["duration_seconds_sum,Topic"] < 10
        assert found["passes_total,BrokerPool"] == 0
        assert found["queue_length,BrokerPool"] == 1
        assert found["queue_length,Topic"] == 0
        started_s = found["in_progress_start_time_seconds,BrokerPool,stuck,shop"]
        assert abs(started_s - began_s) < 10
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert queue.running() == {}

    asyncio.run(story())
