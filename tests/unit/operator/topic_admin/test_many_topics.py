"""What clients' requests cost beside many topics, and the bound of a pool: counted, not timed."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tidemark_operator.api.kinds import TOPIC
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.topic_messages import AddPartitionsRequest, NewTopic, TopicToExpand

from tests.support.waiting import run
from tests.unit.operator.topic_admin.topic_admin_harness import NAMESPACE, POOL_NAME, AdminHarness


def run_with(
    tmp_path: Path, scenario: Callable[[AdminHarness], Awaitable[None]], **pool_spec: Any
) -> None:
    async def ran() -> None:
        harness = AdminHarness(tmp_path)
        try:
            await scenario(await harness.start(3, **pool_spec))
        finally:
            await harness.harness.service.step_down()
            harness.store.close()

    run(ran)


def test_a_topic_costs_the_same_beside_many_others(tmp_path: Path) -> None:
    """Counted: objects that are read, and lists, which are of all."""

    async def scenario(harness: AdminHarness) -> None:
        costs = []
        await harness.create(NewTopic("first", 1, 3))
        for batch in range(3):
            harness.store.reads = 0
            results = await harness.create(*(NewTopic(f"t{batch}-{n}", 1, 3) for n in range(20)))
            assert {result.error for result in results} == {ErrorCode.NONE}
            costs.append(harness.store.reads)
        assert costs == [1 + 2 * 20] * 3  # the pool, and two names of each topic

    run_with(tmp_path, scenario)


def test_topics_of_one_request_share_commits(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        statements: list[str] = []
        harness.store._writes._connection.set_trace_callback(statements.append)
        await harness.create(*(NewTopic(f"t{number}", 1, 3) for number in range(32)))
        assert statements.count("COMMIT") == 1

    run_with(tmp_path, scenario)


def test_a_topic_that_is_named_twice_is_judged_one_after_the_other(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        await harness.create(NewTopic("orders", 1, 3))
        bigger = (TopicToExpand("orders", 3), TopicToExpand("orders", 2), TopicToExpand("other", 2))
        request = AddPartitionsRequest(harness.requesting(), harness.request_id(), topics=bigger)
        results = (await harness.admin.add_partitions(request)).results
        assert [result.topic for result in results] == ["orders", "orders", "other"]
        assert [result.error for result in results] == [
            ErrorCode.NONE,
            ErrorCode.NONE,  # of the same request: made already
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert (await harness.topic("orders"))["spec"]["partitions"] == 3

    run_with(tmp_path, scenario)


def test_topics_beyond_what_the_pool_may_have_are_refused(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        few, many = await harness.create(NewTopic("few", 4, 1), NewTopic("many", 7, 1))
        assert (few.error, many.error) == (ErrorCode.NONE, ErrorCode.POLICY_VIOLATION)
        assert "spec.limits.maxPartitions 10" in many.message
        assert await harness.object_names() == ["few"]
        await harness.harness.create(4)  # as the operator makes it
        for count, error in ((11, ErrorCode.POLICY_VIOLATION), (10, ErrorCode.NONE)):
            growth = (TopicToExpand("few", count),)
            request = AddPartitionsRequest(
                harness.requesting(), harness.request_id(), topics=growth
            )
            (result,) = (await harness.admin.add_partitions(request)).results
            assert result.error is error, result

    run_with(tmp_path, scenario, limits={"maxPartitions": 10})


def test_an_object_of_another_name_is_found_by_whoever_asks_first_and_by_who_asks_with_it(
    tmp_path: Path,
) -> None:
    """The topicName alone tells, and no slice: one list for all who ask at once."""

    async def scenario(harness: AdminHarness) -> None:
        topic = {"partitions": 1, "replicationFactor": 1, "topicName": "Orders"}
        metadata = {"name": "by-hand", "namespace": NAMESPACE}
        item = {
            "kind": TOPIC.kind,
            "metadata": metadata,
            "spec": {**topic, "brokerPool": POOL_NAME},
        }
        await harness.store.create(TOPIC, item)
        harness.store.lists = 0
        requested = (harness.create(NewTopic("Orders", 1, 1)) for _ in range(3))
        results = [result for response in await asyncio.gather(*requested) for result in response]
        assert {result.error for result in results} == {ErrorCode.TOPIC_ALREADY_EXISTS}
        assert "as Topic by-hand" in results[0].message
        assert harness.store.lists == 1

    run_with(tmp_path, scenario)
