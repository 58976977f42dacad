"""What a take-over reads: objects copied or edited by hand hold up nobody else (S12)."""

import copy
from typing import Any

import pytest
from tidemark_operator.api.kinds import BROKER, PARTITION_SLICE, Object, ResourceKind
from tidemark_operator.api.partition_slice import MalformedObject, read_slice, read_slices
from tidemark_protocol.ids import NO_BROKER, ControllerEpoch

from tests.support.controller_harness import ORDERS, POOL, Harness
from tests.support.waiting import run


def put(
    harness: Harness, item: Object, name: str, kind: ResourceKind = PARTITION_SLICE, **metadata: str
) -> Object:
    """A copy under that name, as `kubectl apply` makes one."""
    made = copy.deepcopy(item)
    made["metadata"] |= {"name": name, "uid": f"uid-of-{name}", **metadata}
    harness.store.objects[kind.kind, made["metadata"]["namespace"], name] = made
    return made


async def taken_over(harness: Harness) -> None:
    """By a successor that knows what is stored only."""
    await harness.service.step_down()
    harness.service = harness.another_controller()
    await harness.service.load(ControllerEpoch(2))
    await harness.advance(200, *harness.brokers)


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        ("orders-0-backup", "shop"),
        ("orders-0.bak", "shop"),
        ("orders", "shop"),
        ("orders-1", "shop"),  # would be partitions 128 to 255
        ("orders-00", "shop"),
        ("saved-0", "shop"),  # younger than the one that it is a copy of
        ("orders-0", "elsewhere"),
    ],
)
def test_a_copy_of_a_slice_is_left_alone_and_the_next_controller_goes_on(
    name: str, namespace: str
) -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(partitions=2)
        original = harness.stored_slice()
        original["metadata"]["creationTimestamp"] = "2026-11-21T10:00:00Z"
        made = put(
            harness, original, name, namespace=namespace, creationTimestamp="2026-11-21T11:00:00Z"
        )
        before = copy.deepcopy(made)
        await taken_over(harness)
        view = harness.service.topic(POOL, ORDERS)
        assert view is not None
        assert [state.partition for state in view.partitions] == [0, 1]
        await harness.kill(harness.brokers[harness.partition().leader])  # elections go on
        assert harness.partition().leader != NO_BROKER
        assert made == before

    run(scenario)


@pytest.mark.parametrize(
    "edit",
    [
        {"isr": [{"id": 0, "epoch": 1}, {"id": 7, "epoch": 1}]},
        {"leader": 2, "isr": [{"id": 0, "epoch": 1}]},
        {"isr": [{"id": 0, "epoch": 1}], "eligibleLeaders": [{"id": 0, "epoch": 1}]},
        {"replicas": [0, 0, 1]},
        {"replicas": []},
        {"adding": [9]},
        {"partition": 200},
    ],
)
def test_an_edited_slice_is_missing_and_other_topics_are_elected_on(edit: dict[str, Any]) -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        stray = put(harness, harness.stored_slice(), "payments-0")
        stray |= {"topicName": "payments", "topicId": "7f1c0000-0000-0000-0000-000000000002"}
        stray["partitions"][0] |= {"leader": 0, "leaderBrokerEpoch": 1, **edit}
        with pytest.raises(MalformedObject, match="payments-0: "):
            read_slice(stray)
        await taken_over(harness)
        await harness.kill(harness.brokers[harness.partition().leader])
        assert harness.partition().leader != NO_BROKER

    run(scenario)


def test_of_two_slices_with_the_same_partitions_the_older_one_counts() -> None:
    async def scenario() -> None:
        harness = await Harness().start(1)
        await harness.create(replicas=1)
        item = harness.stored_slice()
        item["metadata"]["creationTimestamp"] = "2026-11-21T10:00:00Z"
        younger = put(harness, item, "a-0", creationTimestamp="2026-11-21T10:00:01Z")
        values, flaws = read_slices([younger, item])
        assert [value.name for value in values] == ["orders-0"]
        assert flaws == [
            "PartitionSlice shop/a-0: duplicates the partitions of the older orders-0:"
            " delete this copy"
        ]

    run(scenario)


def test_a_copy_made_while_a_controller_leads_is_not_taken_for_a_lost_slice() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(partitions=2)
        harness.stored_slice()["metadata"]["creationTimestamp"] = "2026-11-21T10:00:00Z"
        put(harness, harness.stored_slice(), "saved-0", creationTimestamp="2026-11-21T11:00:00Z")
        await harness.service.find_slices(POOL, ORDERS)
        view = harness.service.topic(POOL, ORDERS)
        assert view is not None
        assert len(view.partitions) == 2

    run(scenario)


@pytest.mark.parametrize(
    ("name", "namespace"), [("default-0-backup", "shop"), ("saved-0", "shop"), ("zoo-0", "zoo")]
)
def test_a_copy_of_a_broker_object_is_no_broker(name: str, namespace: str) -> None:
    async def scenario() -> None:
        harness = await Harness().start(1)
        original = harness.store.objects[BROKER.kind, "shop", "default-0"]
        made = put(harness, original, name, BROKER, namespace=namespace)
        made["status"]["brokerEpoch"] = 0  # of long ago
        before = copy.deepcopy(made)
        await taken_over(harness)
        again = await harness.new_broker(0, life="b")
        await harness.advance(200, again)
        (view,) = harness.service.brokers(POOL)
        assert (view.broker_epoch, view.state) == (2, "Active")
        assert made == before

    run(scenario)
