"""PartitionSlice objects: strict where it decides, and the older one of two copies counts."""

from dataclasses import replace
from typing import Any

import pytest
from tidemark_operator.api.partition_slice import (
    PARTITIONS_PER_SLICE,
    MalformedObject,
    PartitionSlice,
    read_slice,
    read_slices,
    slice_object,
    split_pool,
)
from tidemark_operator.api.unclean_election import UncleanCause, UncleanElection
from tidemark_protocol.controller_messages import CommittedTruncation
from tidemark_protocol.ids import BrokerId, LeaderEpoch, Offset, TopicId

from tests.support.command_player import slice_of
from tests.support.controller_values import TOPIC_ID, partition

ELECTION = UncleanElection(
    0, UncleanCause.CHOSEN, LeaderEpoch(5), BrokerId(0), Offset(70), (BrokerId(2),), 3, 1
)
STATE = partition("0@1 1@2", leader="0@1", eligible="2@3", adding=(2,), removing=(1,))
SLICE = replace(slice_of(STATE), resource_version="5", uid="u", recoveries=(ELECTION,))


def stored(value: PartitionSlice = SLICE, *, created: str = "", **state: Any) -> dict[str, Any]:
    """As an object, with these fields of its first partition."""
    item = slice_object(value)
    item["metadata"]["creationTimestamp"] = created
    if state:
        item["partitions"][0].update(state)
    return item


def test_a_slice_is_read_as_it_was_written() -> None:
    assert read_slice(stored()) == SLICE
    assert "resourceVersion" not in slice_object(slice_of(STATE))["metadata"]


def test_a_name_tells_the_topic_object_and_the_index() -> None:
    value = replace(SLICE, name="a-b-12", topic_object="")
    assert (value.name_prefix, value.index, value.object_name) == ("a-b", 12, "a-b")
    assert replace(value, topic_object="adopting").object_name == "adopting"
    assert (split_pool("shop/default"), split_pool("shop")) == (("shop", "default"), ("shop", ""))


@pytest.mark.parametrize(
    ("state", "flaw"),
    [
        ({"replicas": []}, "expected distinct replicas"),
        ({"replicas": [0, 1, 1, 2]}, "expected distinct replicas"),
        ({"eligibleLeaders": [{"id": 1, "epoch": 2}]}, "disjoint"),
        ({"eligibleLeaders": [{"id": 9, "epoch": 2}]}, "among"),
        ({"leader": 2}, "leader 2 is not in the isr"),
        ({"adding": [9]}, "expected adding and removing among"),
        ({"partition": PARTITIONS_PER_SLICE}, "expected partitions from 0 on"),
        ({"partition": -1}, "expected partitions from 0 on"),
        ({"leaderEpoch": "five"}, "ValueError"),
        ({"isr": [{"id": 0}]}, "KeyError 'epoch'"),
    ],
)
def test_an_edited_state_is_an_error_with_its_place(state: dict[str, Any], flaw: str) -> None:
    with pytest.raises(MalformedObject, match="PartitionSlice shop/orders-0: ") as raised:
        read_slice(stored(**state))
    assert flaw in str(raised.value)


@pytest.mark.parametrize(
    "metadata",
    [
        {"namespace": "other"},
        {"name": "orders"},
        {"name": "orders-00"},
        {"name": "orders-1"},
        {"name": "orders-x"},
        {"name": "orders-٠"},
    ],
)
def test_a_copy_under_another_name_or_namespace_is_an_error(metadata: dict[str, str]) -> None:
    item = stored()
    item["metadata"].update(metadata)
    with pytest.raises(MalformedObject):
        read_slice(item)


def test_the_older_of_two_objects_counts_and_a_flaw_hides_no_other_slice() -> None:
    old = stored(replace(SLICE, name="z-0"), created="2026-01-01T00:00:00Z")
    copy = stored(replace(SLICE, name="a-0"), created="2026-01-02T00:00:00Z")
    broken = stored(replace(SLICE, name="broken-0"), leader=2)
    values, flaws = read_slices([copy, broken, old])
    assert [value.name for value in values] == ["z-0"]
    assert [flaw.split(":")[0] for flaw in flaws] == (
        ["PartitionSlice shop/broken-0", "PartitionSlice shop/a-0"]
    )
    assert "duplicates the partitions of the older z-0" in flaws[1]


def test_truncations_count_for_their_topic_and_partition_only() -> None:
    cut = CommittedTruncation(
        TOPIC_ID, 0, LeaderEpoch(5), Offset(70), LeaderEpoch(4), Offset(79), Offset(75)
    )
    others = [replace(cut, topic_id=TopicId("other")), replace(cut, partition=1)]
    assert SLICE.with_truncations(others) is SLICE
    found = SLICE.with_truncations([*others, cut]).unclean_election_of(0)
    assert found is not None
    assert (found.lost_records, found.lost_committed) == (9, 5)
    assert SLICE.unclean_election_of(1) is None
