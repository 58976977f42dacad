"""CreateTopics of a broker's client becomes a Topic object, or a refusal in Kafka's codes."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tidemark_operator.api.kinds import TOPIC
from tidemark_operator.api.schemas import validate
from tidemark_operator.security.broker_identity import BrokerIdentity
from tidemark_operator.store.object_store import AlreadyExists, OutcomeUnknown, Rejected, StoreError
from tidemark_operator.topic_admin.service import topic_calls
from tidemark_protocol.controller_messages import decode, encode
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId
from tidemark_protocol.topic_messages import (
    CREATE_TOPICS_PATH,
    AppliedVersionRequest,
    CreateTopicsRequest,
    NewTopic,
    RequestingBroker,
    TopicsResponse,
)

from tests.support.controller_harness import ORDERS, POOL
from tests.support.waiting import HANG_SECONDS
from tests.unit.operator.topic_admin.topic_admin_harness import POOL_NAME, AdminHarness

Scenario = Callable[[AdminHarness], Awaitable[None]]


def run(tmp_path: Path, scenario: Scenario, brokers: int = 3, **pool_spec: Any) -> None:
    async def ran() -> None:
        harness = AdminHarness(tmp_path)
        try:
            await scenario(await harness.start(brokers, **pool_spec))
        finally:
            await harness.harness.service.step_down()
            harness.store.close()

    asyncio.run(asyncio.wait_for(ran(), HANG_SECONDS))


def assigned(*partitions: tuple[int, ...]) -> tuple[tuple[BrokerId, ...], ...]:
    return tuple(tuple(map(BrokerId, replicas)) for replicas in partitions)


def test_a_topic_over_kafka_is_an_object_as_good_as_one_by_kubectl(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        config = {"retention.ms": "60000"}
        (made,) = await harness.create(NewTopic("orders", 6, 3, config=config))
        stored = await harness.topic("orders")
        assert validate(stored) == []
        assert stored["spec"] == {
            "partitions": 6,
            "replicationFactor": 3,
            "brokerPool": POOL_NAME,
            "commitRule": "MinInsync",
            "flush": "Os",
            "deletionPolicy": "Delete",
            "config": config,
        }
        assert stored["metadata"]["labels"] == {"tidemark.dev/made-by": "kafka"}
        assert (made.error, made.topic_id) == (ErrorCode.NONE, stored["metadata"]["uid"])
        assert (made.partition_count, made.replication_factor) == (6, 3)
        assert made.config["retention.ms"] == "60000"
        assert made.config["min.insync.replicas"] == "2"

    run(tmp_path, scenario)


@pytest.mark.parametrize("brokers, replicas", [(1, 1), (2, 2), (5, 3)])
def test_default_counts_follow_the_pool(tmp_path: Path, brokers: int, replicas: int) -> None:
    async def scenario(harness: AdminHarness) -> None:
        (made,) = await harness.create(NewTopic("orders"))
        assert (made.partition_count, made.replication_factor) == (1, replicas)

    run(tmp_path, scenario, brokers)


def test_the_pool_says_how_many_partitions_a_topic_gets_by_default(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        unsaid, said = await harness.create(NewTopic("orders"), NewTopic("other", 2))
        assert (unsaid.partition_count, said.partition_count) == (6, 2)

    run(tmp_path, scenario, defaultPartitions=6)


@pytest.mark.parametrize("name", ["__consumer_offsets", "Orders", "a_b", "-", "x" * 249, "a..b"])
def test_names_that_no_object_can_have_are_mapped(tmp_path: Path, name: str) -> None:
    async def scenario(harness: AdminHarness) -> None:
        new = NewTopic(name, 1, 1, config={"cleanup.policy": "compact"})
        (made,) = await harness.create(new)
        assert made.error is ErrorCode.NONE
        (object_name,) = await harness.object_names()
        stored = await harness.topic(object_name)
        assert stored["spec"]["topicName"] == name
        assert validate(stored) == []
        (again,) = await harness.create(NewTopic(name, 1, 1))
        assert again.error is ErrorCode.TOPIC_ALREADY_EXISTS

    run(tmp_path, scenario)


def test_an_object_name_that_another_topic_has_is_not_taken_from_it(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        item = {
            "metadata": {"name": "orders", "namespace": POOL.partition("/")[0]},
            "spec": {"topicName": "Orders", "brokerPool": POOL_NAME},
        }
        await harness.store.create(TOPIC, item)
        (made,) = await harness.create(NewTopic("orders", 1, 1))
        assert made.error is ErrorCode.NONE
        names = await harness.object_names()
        assert len(names) == 2 and names[1].startswith("orders-")
        assert (await harness.topic("orders"))["spec"] == item["spec"]

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    "new, error",
    [
        (NewTopic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("orders", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("orders", 10_001, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("orders", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("orders", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("orders", 1, 1, assigned((0,))), ErrorCode.INVALID_REQUEST),
        (NewTopic("orders", assignments=assigned((0, 0))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("orders", assignments=assigned((0,), ())), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("orders", assignments=assigned((7,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            NewTopic("orders", assignments=assigned((0,), (0, 1))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (NewTopic("orders", 1, 1, config={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (
            NewTopic("orders", 1, 1, config={"min.insync.replicas": "2"}),
            ErrorCode.INVALID_CONFIG,
        ),
        (NewTopic("orders", 1, 1, deletion_policy="Maybe"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_kafka_refuses_is_refused_with_its_code_and_nothing_made(
    tmp_path: Path, new: NewTopic, error: ErrorCode
) -> None:
    async def scenario(harness: AdminHarness) -> None:
        (refused,) = await harness.create(new)
        assert refused.error is error and refused.message
        assert await harness.object_names() == []

    run(tmp_path, scenario)


def test_one_refused_topic_does_not_hold_up_another(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        results = await harness.create(NewTopic("a b"), NewTopic("good", 1, 1))
        assert [result.error for result in results] == [
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.NONE,
        ]
        assert await harness.object_names() == ["good"]

    run(tmp_path, scenario)


def test_validating_makes_nothing(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        (would,) = await harness.create(NewTopic("orders", 2, 2), validate_only=True)
        assert (would.error, would.partition_count, would.topic_id) == (ErrorCode.NONE, 2, "")
        assert await harness.object_names() == []

    run(tmp_path, scenario)


def test_assignments_are_the_placement_of_the_manifest(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        (made,) = await harness.create(NewTopic("orders", assignments=assigned((2, 0), (1, 2))))
        assert (made.partition_count, made.replication_factor) == (2, 2)
        assert (await harness.topic("orders"))["spec"]["placement"] == [
            {"partition": 0, "replicas": [2, 0]},
            {"partition": 1, "replicas": [1, 2]},
        ]

    run(tmp_path, scenario)


def test_the_same_request_again_is_no_second_topic(tmp_path: Path) -> None:
    """The first answer was lost: the broker asks again, maybe another controller."""

    async def scenario(harness: AdminHarness) -> None:
        first = await harness.create(NewTopic("orders", 1, 1), request_id="mine")
        assert await harness.create(NewTopic("orders", 1, 1), request_id="mine") == first
        (other,) = await harness.create(NewTopic("orders", 1, 1), request_id="yours")
        assert other.error is ErrorCode.TOPIC_ALREADY_EXISTS

    run(tmp_path, scenario)


def test_a_write_of_unknown_outcome_is_looked_up(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        harness.store.fault, harness.store.lands = OutcomeUnknown("the answer was lost"), True
        (made,) = await harness.create(NewTopic("landed", 1, 1))
        harness.store.lands = False
        (unknown,) = await harness.create(NewTopic("lost", 1, 1))
        assert (made.error, unknown.error) == (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    "fault, code",
    [
        (Rejected("denied by policy teams-own-topics"), ErrorCode.POLICY_VIOLATION),
        (AlreadyExists("taken"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (StoreError("no answer in 5000 ms"), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_what_the_api_server_refuses_is_told(
    tmp_path: Path, fault: StoreError, code: ErrorCode
) -> None:
    async def scenario(harness: AdminHarness) -> None:
        harness.store.fault = fault
        (refused,) = await harness.create(NewTopic("orders", 1, 1))
        assert refused.error is code
        if code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            assert str(fault) in refused.message

    run(tmp_path, scenario)


def test_data_of_a_former_topic_is_adopted_only_where_that_is_asked_for(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        await harness.harness.create(partitions=1)
        view = harness.harness.service.topics(POOL)[0]
        await harness.harness.service.delete_topic(POOL, view.topic.topic_id, retain=True)
        (refused,) = await harness.create(NewTopic("orders", 1, 3))
        assert refused.error is ErrorCode.POLICY_VIOLATION
        assert "deletionPolicy Retain" in refused.message
        (made,) = await harness.create(NewTopic("orders", 1, 3, may_adopt=True))
        assert made.error is ErrorCode.NONE

    run(tmp_path, scenario)


def test_only_a_registered_broker_is_answered_by_the_leading_controller(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        calls = topic_calls(harness.admin)
        sender = BrokerIdentity(POOL, BrokerId(0))

        async def ask(broker: RequestingBroker, topics: int = 1) -> ErrorCode:
            new = tuple(NewTopic(f"t{number}", 1, 1) for number in range(topics))
            request = encode(CreateTopicsRequest(broker, "id", new, validate_only=True))
            return decode(await calls[CREATE_TOPICS_PATH](sender, request), TopicsResponse).error

        previous = RequestingBroker(POOL, BrokerId(0), BrokerEpoch(0))
        assert await ask(harness.requesting()) is ErrorCode.NONE
        assert await ask(previous) is ErrorCode.STALE_BROKER_EPOCH
        assert await ask(harness.requesting(), topics=1001) is ErrorCode.INVALID_REQUEST
        requesting = harness.requesting()
        await harness.harness.service.step_down()
        assert await ask(requesting) is ErrorCode.NOT_CONTROLLER

    run(tmp_path, scenario)


def test_what_every_live_broker_has_applied_is_told(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        async def applied() -> int:
            response = await harness.admin.applied_version(
                AppliedVersionRequest(harness.requesting())
            )
            assert response.error is ErrorCode.NONE
            return response.applied_version

        await harness.harness.create(partitions=1)
        behind, *others = harness.harness.brokers
        version = others[0].version
        assert await applied() == version
        await harness.harness.service.add_partitions(POOL, ORDERS, assigned((0, 1, 2)), first=1)
        for broker in others:
            await broker.catch_up()
        assert others[0].version > version and await applied() == version
        await behind.catch_up()
        assert await applied() == others[0].version

    run(tmp_path, scenario)
