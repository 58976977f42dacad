"""Changes and deletions over Kafka are changes of manifests, or refusals that say what to do."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tidemark_operator.api.kinds import TOPIC
from tidemark_operator.store.object_store import Conflict, OutcomeUnknown, StoreError
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, TopicId
from tidemark_protocol.topic_messages import (
    AddPartitionsRequest,
    AlterConfigsRequest,
    ConfigChange,
    ConfigOperation,
    DeleteTopicsRequest,
    ElectedPartition,
    ElectLeadersRequest,
    NewTopic,
    Reassignment,
    ReassignPartitionsRequest,
    TopicResult,
    TopicToAlter,
    TopicToDelete,
    TopicToExpand,
)

from tests.support.controller_harness import ORDERS, POOL
from tests.support.waiting import HANG_SECONDS
from tests.unit.operator.topic_admin.topic_admin_harness import NAMESPACE, AdminHarness

Scenario = Callable[[AdminHarness], Awaitable[None]]
SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
APPEND, SUBTRACT = ConfigOperation.APPEND, ConfigOperation.SUBTRACT


def run(tmp_path: Path, scenario: Scenario, brokers: int = 4) -> None:
    async def ran() -> None:
        harness = AdminHarness(tmp_path)
        try:
            await harness.start(brokers)
            await harness.create(NewTopic("orders", 2, 3))
            await scenario(harness)
        finally:
            await harness.harness.service.step_down()
            harness.store.close()

    asyncio.run(asyncio.wait_for(ran(), HANG_SECONDS))


async def grow(
    harness: AdminHarness, count: int, *assignments: tuple[int, ...], **how: Any
) -> TopicResult:
    placed = tuple(tuple(map(BrokerId, replicas)) for replicas in assignments)
    grown = TopicToExpand("orders", count, placed)
    how = {"request_id": harness.request_id(), **how}
    request = AddPartitionsRequest(harness.requesting(), topics=(grown,), **how)
    return (await harness.admin.add_partitions(request)).results[0]


async def alter(harness: AdminHarness, *changes: ConfigChange, **how: Any) -> TopicResult:
    altered = TopicToAlter("orders", changes, how.pop("replaces_all", False))
    request = AlterConfigsRequest(harness.requesting(), harness.request_id(), (altered,), **how)
    return (await harness.admin.alter_configs(request)).results[0]


async def delete(harness: AdminHarness, topic: str, topic_id: str = "") -> TopicResult:
    to_delete = TopicToDelete(topic, TopicId(topic_id))
    request = DeleteTopicsRequest(harness.requesting(), harness.request_id(), (to_delete,))
    return (await harness.admin.delete_topics(request)).results[0]


async def move(
    harness: AdminHarness, targets: dict[int, tuple[int, ...] | None], **how: Any
) -> TopicResult:
    moves = tuple(
        Reassignment("orders", number, None if to is None else tuple(map(BrokerId, to)))
        for number, to in targets.items()
    )
    request = ReassignPartitionsRequest(harness.requesting(), harness.request_id(), moves, **how)
    return (await harness.admin.reassign_partitions(request)).results[0]


async def spec(harness: AdminHarness) -> dict[str, Any]:
    found: dict[str, Any] = (await harness.topic("orders"))["spec"]
    return found


async def edit(harness: AdminHarness, **metadata: Any) -> None:
    """Somebody's kubectl."""
    item = await harness.topic("orders")
    await harness.store.replace(TOPIC, {**item, "metadata": {**item["metadata"], **metadata}})


def test_partitions_grow_with_the_brokers_that_were_asked_for(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        result = await grow(harness, 4, (3, 1, 2), (0, 3, 1))
        assert (result.error, result.partition_count) == (ErrorCode.NONE, 4)
        assert (await spec(harness))["partitions"] == 4
        assert (await spec(harness))["placement"] == [
            {"partition": 2, "replicas": [3, 1, 2]},
            {"partition": 3, "replicas": [0, 3, 1]},
        ]

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    "count, assignments, error",
    [
        (2, (), ErrorCode.INVALID_PARTITIONS),
        (1, (), ErrorCode.INVALID_PARTITIONS),
        (10_001, (), ErrorCode.INVALID_PARTITIONS),
        (4, ((0, 1, 2),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, ((0, 1),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, ((0, 1, 9),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_growth_that_cannot_be_changes_nothing(
    tmp_path: Path, count: int, assignments: tuple[tuple[int, ...], ...], error: ErrorCode
) -> None:
    async def scenario(harness: AdminHarness) -> None:
        before = await spec(harness)
        result = await grow(harness, count, *assignments)
        assert result.error is error and result.message
        assert await spec(harness) == before

    run(tmp_path, scenario)


def test_growth_asked_for_again_is_done_once_and_validating_does_nothing(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        assert (await grow(harness, 3, validate_only=True)).error is ErrorCode.NONE
        assert (await spec(harness))["partitions"] == 2
        for _ in range(2):
            assert (await grow(harness, 3, request_id="mine")).error is ErrorCode.NONE
        assert (await grow(harness, 3)).error is ErrorCode.INVALID_PARTITIONS

    run(tmp_path, scenario)


def test_configs_are_set_deleted_and_lists_added_to(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        result = await alter(
            harness,
            ConfigChange("retention.ms", SET, "1000"),
            ConfigChange("cleanup.policy", APPEND, "compact"),
        )
        assert result.error is ErrorCode.NONE
        assert result.config["retention.ms"] == "1000"
        stored = {"cleanup.policy": "delete,compact", "retention.ms": "1000"}
        assert (await spec(harness))["config"] == stored
        await alter(
            harness,
            ConfigChange("retention.ms", DELETE),
            ConfigChange("cleanup.policy", SUBTRACT, "delete"),
        )
        assert (await spec(harness))["config"] == {"cleanup.policy": "compact"}
        change = ConfigChange("cleanup.policy", SUBTRACT, "compact")
        await alter(harness, change, ConfigChange("retention.ms", SET, " +5 "))
        # An empty policy keeps everything (KIP-1161); values have one spelling.
        assert (await spec(harness))["config"] == {"cleanup.policy": "", "retention.ms": "5"}
        await alter(harness, ConfigChange("cleanup.policy", APPEND, "delete, compact"))
        assert (await spec(harness))["config"]["cleanup.policy"] == "delete,compact"
        await alter(harness, ConfigChange("segment.ms", SET, "5000"), replaces_all=True)
        assert (await spec(harness))["config"] == {"segment.ms": "5000"}

    run(tmp_path, scenario)


def test_what_tools_delete_after_a_move_is_no_change(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        names = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
        result = await alter(harness, *(ConfigChange(name, DELETE) for name in names))
        assert result.error is ErrorCode.NONE

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    "change, words",
    [
        (ConfigChange("retention.m", SET, "1"), "retention.ms"),
        (ConfigChange("retention.m", DELETE), "retention.ms"),
        (ConfigChange("retention.ms", SET, "soon"), "integer"),
        (ConfigChange("retention.ms", APPEND, "1"), "not a list"),
        (ConfigChange("cleanup.policy", APPEND, "archive"), "cleanup.policy"),
        (ConfigChange("min.insync.replicas", SET, "4"), "replicationFactor"),
        (ConfigChange("flush.ms", SET, "1"), "spec.flush"),
    ],
)
def test_a_config_that_does_not_work_is_refused_and_nothing_stored(
    tmp_path: Path, change: ConfigChange, words: str
) -> None:
    async def scenario(harness: AdminHarness) -> None:
        result = await alter(harness, change)
        assert result.error is ErrorCode.INVALID_CONFIG and words in result.message
        assert (await spec(harness))["config"] == {}

    run(tmp_path, scenario)


def test_another_writer_in_between_is_not_written_over(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        harness.store.between = lambda: edit(harness, labels={"team": "shop"})
        result = await alter(harness, ConfigChange("retention.ms", SET, "1000"))
        assert result.error is ErrorCode.NONE
        stored = await harness.topic("orders")
        assert stored["metadata"]["labels"] == {"team": "shop"}
        assert stored["spec"]["config"] == {"retention.ms": "1000"}

    run(tmp_path, scenario)


@pytest.mark.parametrize("lands", [True, False])
def test_a_change_of_unknown_outcome_is_looked_up(tmp_path: Path, lands: bool) -> None:
    async def scenario(harness: AdminHarness) -> None:
        harness.store.replace_faults = ((OutcomeUnknown("the answer was lost"), lands),)
        assert (await grow(harness, 3)).error is ErrorCode.NONE
        assert (await spec(harness))["partitions"] == 3

    run(tmp_path, scenario)


def test_a_fight_over_the_object_ends(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        harness.store.replace_faults = ((Conflict("faster"), False),) * 100
        assert (await grow(harness, 3)).error is ErrorCode.REQUEST_TIMED_OUT

    run(tmp_path, scenario)


def test_deleting_takes_the_object_whose_id_was_meant(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        assert (await delete(harness, "orders", "other-id")).error is ErrorCode.UNKNOWN_TOPIC_ID
        uid = (await harness.topic("orders"))["metadata"]["uid"]
        assert (await delete(harness, "orders", uid)).error is ErrorCode.NONE
        assert await harness.object_names() == []
        assert (await delete(harness, "orders")).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, scenario)


def test_retained_data_is_not_deleted_over_kafka(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        await harness.create(NewTopic("kept", 1, 1, deletion_policy="Retain"))
        result = await delete(harness, "kept")
        assert result.error is ErrorCode.POLICY_VIOLATION and "deletionPolicy" in result.message
        assert "kept" in await harness.object_names()

    run(tmp_path, scenario)


def test_the_slices_are_told_before_the_object_goes_that_the_data_goes_too(tmp_path: Path) -> None:
    """The manifest said Retain until a moment ago, and the reconciler has not been here since."""

    async def scenario(harness: AdminHarness) -> None:
        await harness.harness.create(partitions=2)
        assert harness.harness.service.topics(POOL)[0].deletion_policy == "Retain"
        assert (await delete(harness, "orders")).error is ErrorCode.NONE
        assert harness.harness.service.topics(POOL)[0].deletion_policy == "Delete"

    run(tmp_path, scenario)


async def retain(harness: AdminHarness) -> None:
    """Somebody's kubectl apply."""
    item = await harness.topic("orders")
    await harness.store.replace(
        TOPIC, {**item, "spec": {**item["spec"], "deletionPolicy": "Retain"}}
    )


def test_a_manifest_that_says_retain_by_the_time_it_would_go_keeps_its_data(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        await harness.harness.create(partitions=2)
        harness.store.before_delete = lambda: retain(harness)
        result = await delete(harness, "orders")  # I20
        assert result.error is ErrorCode.POLICY_VIOLATION and "deletionPolicy" in result.message
        assert await harness.object_names() == ["orders"]
        # An attempt had told the slices otherwise.
        assert harness.harness.service.topics(POOL)[0].deletion_policy == "Retain"

    run(tmp_path, scenario)


def test_what_was_found_with_other_topics_is_read_again_before_it_is_deleted(
    tmp_path: Path,
) -> None:
    async def scenario(harness: AdminHarness) -> None:
        await harness.create(NewTopic("first", 1, 1))
        harness.store.before_delete = lambda: retain(
            harness
        )  # while the first one is being deleted
        to_delete = (TopicToDelete("first", TopicId("")), TopicToDelete("orders", TopicId("")))
        request = DeleteTopicsRequest(harness.requesting(), harness.request_id(), to_delete)
        results = (await harness.admin.delete_topics(request)).results
        assert [each.error for each in results] == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
        assert await harness.object_names() == ["orders"]

    run(tmp_path, scenario)


def test_a_write_of_its_status_in_between_does_not_keep_a_topic_from_going(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        async def note() -> None:
            item = await harness.topic("orders")
            await harness.store.replace_status(TOPIC, {**item, "status": {"leaderless": 1}})

        harness.store.before_delete = note
        assert (await delete(harness, "orders")).error is ErrorCode.NONE
        assert await harness.object_names() == []

    run(tmp_path, scenario)


HELM = {
    "labels": {"app.kubernetes.io/managed-by": "Helm"},
    "annotations": {"meta.helm.sh/release-name": "shop"},
}
ARGO = {"annotations": {"argocd.argoproj.io/tracking-id": "shop:tidemark.dev/Topic:shop/orders"}}
FLUX = {"labels": {"kustomize.toolkit.fluxcd.io/name": "shop"}}
OWNED = {"ownerReferences": [{"kind": "Shop", "name": "main", "controller": True}]}
LOCKED = {"annotations": {"tidemark.dev/kafka-admin": "Refuse"}}
ALLOWED = {**HELM, "annotations": {"tidemark.dev/kafka-admin": "Allow"}}


@pytest.mark.parametrize(
    "metadata, words",
    [
        (HELM, "Helm release shop"),
        (ARGO, "Argo CD"),
        (FLUX, "Flux"),
        (OWNED, "Shop main"),
        (LOCKED, "Refuse"),
    ],
    ids=["helm", "argo", "flux", "owner", "locked"],
)
def test_what_somebody_keeps_is_changed_there(
    tmp_path: Path, metadata: dict[str, Any], words: str
) -> None:
    async def scenario(harness: AdminHarness) -> None:
        await edit(harness, **metadata)
        before = await harness.topic("orders")
        results = [
            await grow(harness, 3),
            await alter(harness, ConfigChange("retention.ms", SET, "1")),
            await delete(harness, "orders"),
        ]
        assert {result.error for result in results} == {ErrorCode.POLICY_VIOLATION}
        assert all(words in result.message for result in results)
        assert await harness.topic("orders") == before

    run(tmp_path, scenario)


def test_the_annotation_opens_what_is_kept(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        await edit(harness, **ALLOWED)
        assert (await grow(harness, 3)).error is ErrorCode.NONE

    run(tmp_path, scenario)


async def served(harness: AdminHarness) -> None:
    """The reconciler's part: the slices of `orders`."""
    await harness.harness.create(partitions=2)


def test_a_move_is_the_placement_of_the_manifest_and_is_turned_back_there(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        await served(harness)
        assert harness.harness.partition(1).replicas == (1, 2, 3)
        target = tuple(map(BrokerId, (0, 1, 2)))
        assert (await move(harness, {1: target})).error is ErrorCode.NONE
        assert (await spec(harness))["placement"] == [{"partition": 1, "replicas": [0, 1, 2]}]
        await harness.harness.service.reassign(POOL, ORDERS, {1: target})
        assert (await move(harness, {1: None})).error is ErrorCode.NONE
        (entry,) = (await spec(harness))["placement"]
        assert sorted(entry["replicas"]) == [1, 2, 3]

    run(tmp_path, scenario)


def test_another_replication_factor_takes_all_partitions(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        await served(harness)
        some = await move(harness, {1: (3, 1)})
        assert some.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "spec.replicationFactor 3 of the Topic" in some.message
        assert "found 2 brokers for 1 of 2 partitions" in some.message
        mixed = await move(harness, {0: (0, 1, 2), 1: (3, 1)})
        assert mixed.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "found 2 and 3 brokers for 2 of 2 partitions" in mixed.message
        forbidden = await move(harness, {0: (0, 1), 1: (3, 1)}, may_change_replication_factor=False)
        assert forbidden.error is ErrorCode.INVALID_REPLICATION_FACTOR
        assert (await move(harness, {0: (0, 1), 1: (3, 1)})).error is ErrorCode.NONE
        assert (await spec(harness))["replicationFactor"] == 2

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    "targets, error",
    [
        ({0: (0, 0, 1)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: (0, 1, 9)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: ()}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({7: (0, 1, 2)}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({7: None}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({0: None}, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_a_move_that_cannot_be_changes_nothing(
    tmp_path: Path, targets: dict[int, tuple[int, ...] | None], error: ErrorCode
) -> None:
    async def scenario(harness: AdminHarness) -> None:
        await served(harness)
        before = await spec(harness)
        assert (await move(harness, targets)).error is error
        assert await spec(harness) == before

    run(tmp_path, scenario)


def test_where_a_partitions_state_is_hidden_its_move_is_turned_back_later(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        await served(harness)
        lost = (OutcomeUnknown("no answer"), False)
        harness.store.replace_faults = (lost,) * harness.harness.settings.write_attempts
        target = tuple(map(BrokerId, (0, 1, 3)))
        with pytest.raises(StoreError):
            await harness.harness.service.reassign(POOL, ORDERS, {1: target})
        assert (await move(harness, {1: None})).error is ErrorCode.REQUEST_TIMED_OUT
        assert (await move(harness, {2: None})).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, scenario)


def test_elections_are_asked_for_by_partition(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        await served(harness)

        async def elect(*numbers: int, unclean: bool = False) -> list[ErrorCode]:
            partitions = tuple(ElectedPartition("orders", number) for number in numbers)
            request = ElectLeadersRequest(
                harness.requesting(), harness.request_id(), partitions, unclean
            )
            results = (await harness.admin.elect_leaders(request)).results
            assert [result.partition for result in results] == list(numbers)
            return [result.error for result in results]

        not_needed, unknown = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await elect(1, 0, 9) == [not_needed, not_needed, unknown]
        assert await elect(0, unclean=True) == [not_needed]
        preferred = harness.harness.brokers[harness.harness.partition(1).leader]
        await harness.harness.kill(preferred)
        await harness.harness.advance(
            500, *(b for b in harness.harness.brokers if b is not preferred)
        )
        assert harness.harness.partition(1).leader not in (-1, preferred.broker_id)
        assert await elect(1) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
        unknown_topic = ElectLeadersRequest(
            harness.requesting(), harness.request_id(), (ElectedPartition("nobody", 0),)
        )
        (reported,) = (await harness.admin.elect_leaders(unknown_topic)).results
        assert reported.error is unknown

    run(tmp_path, scenario)


def test_a_topic_in_another_namespace_is_nobodys_business(tmp_path: Path) -> None:
    async def scenario(harness: AdminHarness) -> None:
        item = {"metadata": {"name": "theirs", "namespace": f"not-{NAMESPACE}"}, "spec": {}}
        await harness.store.create(TOPIC, item)
        assert (await delete(harness, "theirs")).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, scenario)
