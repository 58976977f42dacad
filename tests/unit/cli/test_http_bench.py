"""The small HTTP bench against a fake broker."""

import asyncio

from tidemark_cli.http_bench import BenchSettings, run_bench

from tests.support.fake_http_broker import TOPIC, FakeCluster, answering, problem
from tests.support.waiting import HANG_SECONDS


def test_requests_are_counted_and_failures_named() -> None:
    async def experiment() -> None:
        async with FakeCluster() as cluster:
            cluster.next_responses = [
                answering(lambda: problem(503, "NOT_ENOUGH_REPLICAS", outcome="not_written"))
            ]
            settings = BenchSettings(
                TOPIC, connections=2, records_per_request=3, seconds=0.1, warm_up_seconds=0.0
            )
            result = await run_bench([cluster.url(0)], settings)
            assert result.failures == {"NOT_ENOUGH_REPLICAS": 1}
            assert result.requests * 3 == len(cluster.logs[0])
            assert result.records_per_second == round(result.requests * 3 / 0.1)

    asyncio.run(asyncio.wait_for(experiment(), HANG_SECONDS))
