"""What a slice's write is known to have stored: its answer, read anew only where it differs."""

import pytest
from tidemark_operator.api.kinds import Object, ResourceKind
from tidemark_operator.controller import slice_store
from tidemark_protocol.ids import TopicId

from tests.support.waiting import run
from tests.unit.operator.controller.many_topics import (
    HeldStore,
    caught_up,
    creation,
    decisions,
    topic_id,
    with_topics,
)


class ChangingStore(HeldStore):
    """Keeps another deletionPolicy than was sent, as an admission webhook may."""

    policy = ""

    def _write(self, kind: ResourceKind, item: Object) -> Object:
        if self.policy and "deletionPolicy" in item:
            item = {**item, "deletionPolicy": self.policy}
        return super()._write(kind, item)


def test_partitions_of_an_answer_that_says_what_was_sent_are_not_read_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        harness, store = await with_topics("orders", partitions=30)
        reads: list[Object] = []
        original = slice_store.read_slice
        monkeypatch.setattr(
            slice_store, "read_slice", lambda item: (reads.append(item), original(item))[1]
        )
        await creation(harness, "other", 30)
        await harness.kill(harness.brokers[1])
        assert {"orders-0", "other-0"} <= set(store.log)  # both were written since
        assert reads == []
        for name in ("orders", "other"):
            (known,) = decisions(harness).state.topic_slices(topic_id(name))
            stored = store.objects[("PartitionSlice", "shop", f"{name}-0")]
            assert known == original(stored)
        await caught_up(harness)

    run(scenario)


def test_an_answer_that_says_something_else_is_what_is_stored() -> None:
    async def scenario() -> None:
        harness, _ = await with_topics()
        changing = ChangingStore()
        changing.objects = harness.store.objects
        changing.policy = "Retain"
        harness.service._pools["shop/default"].decisions.slice_store._store = changing
        await creation(harness, "orders")
        (known,) = decisions(harness).state.topic_slices(TopicId("id-orders"))
        assert known.deletion_policy == "Retain"

    run(scenario)
