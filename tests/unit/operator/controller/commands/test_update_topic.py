"""What a Topic that is applied again changes of its slices, what it never does, and who refuses
it."""

from dataclasses import replace

import pytest
from tidemark_operator.api.kinds import Object, ResourceKind
from tidemark_operator.controller.core.placement import place
from tidemark_operator.controller.service import SliceMissing
from tidemark_operator.store.object_store import Rejected
from tidemark_protocol.partition_state import TopicState

from tests.support.controller_harness import ORDERS, POOL, Harness
from tests.support.controller_steps import grow
from tests.support.waiting import run


def with_another_promise(harness: Harness) -> TopicState:
    return replace(
        harness.topic_state(), commit_rule="Isr", flush="Always", config={"retention.ms": "1000"}
    )


def stored_promise(harness: Harness) -> tuple[object, ...]:
    view, stored = harness.service.topic(POOL, ORDERS), harness.stored_slice()
    assert view is not None
    assert (view.topic.commit_rule, view.topic.flush) == (stored["commitRule"], stored["flush"])
    return stored["commitRule"], stored["flush"], stored["config"]


def test_an_update_brings_its_config_and_no_other_commit_rule_or_flush() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.service.update_topic(POOL, with_another_promise(harness))
        assert stored_promise(harness) == ("MinInsync", "Os", {"retention.ms": "1000"})

    run(scenario)


def test_adopted_slices_keep_the_commit_rule_and_the_flush_of_their_records() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.service.delete_topic(POOL, ORDERS, retain=True)
        ids = [broker.broker_id for broker in harness.brokers]
        await harness.service.create_topic(
            POOL, with_another_promise(harness), place(1, 3, ids), had_slices=True
        )
        assert harness.stored_slice()["retained"] is False
        assert stored_promise(harness) == ("MinInsync", "Os", {"retention.ms": "1000"})

    run(scenario)


def test_partitions_that_adopted_slices_grow_by_are_promised_the_same_as_the_others() -> None:
    """Also those of a further slice: a topic has one commit rule and one flush."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(128)
        await harness.service.delete_topic(POOL, ORDERS, retain=True)
        ids = [broker.broker_id for broker in harness.brokers]
        await harness.service.create_topic(
            POOL, with_another_promise(harness), place(129, 3, ids), had_slices=True
        )
        promises = [(s["commitRule"], s["flush"]) for s in map(harness.stored_slice, range(2))]
        assert promises == [("MinInsync", "Os")] * 2
        assert harness.partition(128).has_leader

    run(scenario)


def test_a_quota_that_refuses_a_slice_is_told_at_once() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        harness.store.faults["PartitionSlice"] = ["refused"]
        with pytest.raises(Rejected, match="exceeded quota"):
            await harness.create()
        assert harness.service.topics(POOL) == ()
        await harness.create()  # once the user has done something about it
        assert harness.service.topic(POOL, ORDERS) is not None

    run(scenario)


def test_a_slice_that_landed_late_and_took_the_quota_is_found() -> None:
    """Of a write whose answer was lost: the next one is refused for it."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        create = harness.store.create

        async def landed_and_rejected(kind: ResourceKind, item: Object) -> Object:
            await create(kind, item)
            raise Rejected("exceeded quota")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(harness.store, "create", landed_and_rejected)
            await harness.create()
        assert harness.service.topic(POOL, ORDERS) is not None

    run(scenario)


@pytest.mark.parametrize("grown_before", [1, 3])
def test_growth_planned_before_another_one_landed_adds_only_what_is_missing(
    grown_before: int,
) -> None:
    """S3: its answer was lost, or its controller was deposed; partitions never shrink again."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(3)
        await grow(harness, 3, grown_before)
        await grow(harness, 3, 3)
        view = harness.service.topic(POOL, ORDERS)
        assert view is not None
        assert [state.partition for state in view.partitions] == list(range(6))
        planned = place(3, 3, [broker.broker_id for broker in harness.brokers], first_partition=3)
        assert [state.replicas for state in view.partitions[3:]] == list(planned)
        assert view.topic.partition_count == 6

    run(scenario)


def test_growth_behind_partitions_that_are_gone_is_refused() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(3)
        with pytest.raises(SliceMissing, match=r"3 to 4 .* restore"):
            await grow(harness, 5, 1)

    run(scenario)
