"""The indexes of a pool's slices say what a look at all of them would."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.core.known_slices import KnownSlices
from tidemark_protocol.ids import BrokerId, ControllerEpoch, TopicId
from tidemark_protocol.partition_state import PartitionState, TopicState

from tests.support.controller_values import partition

LED_BY_0 = partition("0@1 1@2 2@3", leader="0@1")
LED_BY_1 = partition("0@1 1@7", leader="1@7")
BROKERS = [BrokerId(number) for number in range(4)]


def slice_of(
    topic: str, index: int = 0, *states: PartitionState, topic_id: str = "", retained: bool = False
) -> PartitionSlice:
    numbered = [replace(state, partition=128 * index + n) for n, state in enumerate(states)]
    return PartitionSlice(
        pool="shop/default",
        name=f"{topic}-{index}",
        topic=TopicState(topic, TopicId(topic_id or f"id-{topic}"), len(numbered), 3),
        deletion_policy="Delete",
        is_retained=retained,
        controller_epoch=ControllerEpoch(1),
        partitions=tuple(numbered),
    )


def known(*values: PartitionSlice) -> KnownSlices:
    slices = KnownSlices()
    for value in values:
        slices[value.name] = value
    return slices


def leaders_of(values: Iterable[PartitionSlice]) -> Counter[BrokerId]:
    states = [state for value in values for state in value.partitions]
    return Counter(state.leader for state in states if state.has_leader)


def test_slices_of_a_topic_are_in_the_order_of_their_partitions() -> None:
    slices = known(*(slice_of("orders", index, LED_BY_0) for index in (10, 2, 0)))
    assert [value.index for value in slices.of_topic(TopicId("id-orders"))] == [0, 2, 10]
    assert slices.of_topic(TopicId("id-other")) == []


def test_a_name_finds_every_topic_id_that_has_it_and_none_that_is_gone() -> None:
    slices = known(
        slice_of("orders", 0, LED_BY_0),
        replace(slice_of("orders", 1, LED_BY_0, topic_id="former"), name="kept-0"),
    )
    assert slices.topic_ids_named("orders") == ("id-orders", "former")
    del slices["kept-0"]
    assert slices.topic_ids_named("orders") == ("id-orders",)
    slices.pop("orders-0")
    assert (slices.topic_ids_named("orders"), slices.topic_ids()) == ((), ())


def test_counts_follow_every_change() -> None:
    slices = known(slice_of("orders", 0, LED_BY_0, LED_BY_1), slice_of("other", 0, LED_BY_0))
    changes = (
        slice_of("orders", 0, LED_BY_1, LED_BY_1, LED_BY_1),
        slice_of("other", 0, LED_BY_0, retained=True),
        slice_of("other", 0, replace(LED_BY_0, leader=BrokerId(-1))),
    )
    for value in changes:
        slices[value.name] = value
        assert +slices.leaders() == leaders_of(slices.values())
        assert slices.partition_count == sum(len(each.partitions) for each in slices.values())
    slices.clear()
    assert (+slices.leaders(), slices.partition_count) == (Counter(), 0)


def test_a_broker_is_in_sync_everywhere_or_just_being_added() -> None:
    behind = replace(LED_BY_1, replicas=(BrokerId(0), BrokerId(1), BrokerId(2)))
    slices = known(slice_of("orders", 0, LED_BY_0, behind))

    def in_sync() -> list[bool]:
        return [slices.is_in_sync_everywhere(broker_id) for broker_id in BROKERS]

    assert in_sync() == [True, True, False, True]
    slices["orders-0"] = slice_of(
        "orders", 0, LED_BY_0, replace(behind, adding_replicas=(BrokerId(2),))
    )
    assert in_sync() == [True, True, True, True]


def test_the_highest_epoch_of_an_entry_is_never_forgotten() -> None:
    """S2: it must not be given again, though its slice is gone."""
    slices = known(slice_of("orders", 0, LED_BY_1))
    slices.clear()
    assert slices.highest_broker_epoch == 7
