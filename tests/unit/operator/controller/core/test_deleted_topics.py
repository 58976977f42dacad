"""The durable record of a deletion: whom it waits for, what it covers, how it is stored (S12)."""

from dataclasses import replace

import pytest
from tidemark_operator.api.partition_slice import MalformedObject, PartitionSlice, slice_object
from tidemark_operator.controller.core.deleted_topics import (
    Tombstone,
    is_tombstone,
    read_tombstone,
    tombstone_object,
    tombstone_of,
)
from tidemark_protocol.ids import BrokerId, ControllerEpoch

from tests.support.command_player import slice_of
from tests.support.controller_values import TOPIC_ID, partition

FIRST = replace(slice_of(partition("0@1", replicas=(0, 5)), name="orders-0"), uid="uid-0")
SECOND = replace(slice_of(partition("3@1", replicas=(3,)), name="orders-1"), uid="uid-1")
EPOCH = ControllerEpoch(4)


def deletion(*brokers: int) -> Tombstone:
    return tombstone_of([FIRST, SECOND], [BrokerId(number) for number in brokers])


def test_all_brokers_of_the_pool_and_all_replicas_are_awaited_once() -> None:
    assert deletion(7, 3).awaited == (0, 3, 5, 7)
    assert deletion().awaited == (0, 3, 5)


def test_a_slice_that_was_created_again_is_not_covered() -> None:
    tombstone = deletion()
    later: PartitionSlice = replace(FIRST, uid="uid-9")
    unknown = replace(FIRST, name="orders-2")
    assert [tombstone.covers(each) for each in (FIRST, SECOND, later, unknown)] == (
        [True, True, False, False]
    )


def test_a_stored_record_is_read_as_it_was_written() -> None:
    item = tombstone_object(deletion(7), EPOCH)
    item["metadata"]["uid"] = "uid-of-record"
    assert is_tombstone(item)
    assert read_tombstone(item) == replace(deletion(7), uid="uid-of-record")
    assert (item["metadata"]["namespace"], item["controllerEpoch"]) == ("shop", EPOCH)


def test_a_slice_is_no_deletion_record() -> None:
    assert not is_tombstone(slice_object(FIRST))
    assert not is_tombstone({"deleted": False})


@pytest.mark.parametrize(
    "flaw", [{"awaited": ["seven"]}, {"awaited": None}, {"deletedSlices": None}]
)
def test_a_malformed_record_is_an_error_with_its_place(flaw: dict[str, object]) -> None:
    item = tombstone_object(deletion(), EPOCH) | flaw
    with pytest.raises(MalformedObject, match=f"PartitionSlice shop/deleted.{TOPIC_ID}: "):
        read_tombstone(item)


def test_a_record_without_a_topic_is_an_error_with_the_missing_field() -> None:
    item = tombstone_object(deletion(), EPOCH)
    del item["topicId"]
    with pytest.raises(MalformedObject, match="KeyError 'topicId'"):
        read_tombstone(item)
