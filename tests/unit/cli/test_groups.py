"""Groups as several brokers tell them, and how far behind they are."""

from typing import Any

import pytest
from tidemark_cli.groups import GroupView, merged, read_groups
from tidemark_client.metadata import UnreadableResponse


def answer(broker_id: int = 1, *, members: int = 1) -> dict[str, Any]:
    member = {
        "member_id": "m", "group_instance_id": None, "client_id": "c", "host": "10.0.0.1",
        "partitions": [{"topic": "orders", "partition": 0}],
    }  # fmt: skip
    offsets = [
        {"topic": "orders", "partition": n, "offset": 5, "metadata": "", "committed_ms": 7}
        for n in range(2)
    ]
    group = {
        "group": "g", "state": "Stable", "protocol_type": "consumer", "protocol": "range",
        "members": [member] * members, "offsets": offsets,
    }  # fmt: skip
    return {"broker_id": broker_id, "is_loading": False, "groups": [group]}


def read(body: dict[str, Any]) -> GroupView:
    (group,), _ = read_groups(body)
    return group


def test_lag_is_what_lies_between_committed_and_end() -> None:
    group = read(answer()).with_ends({("orders", 0): 9, ("orders", 1): 4})
    assert [(o.end_offset, o.lag, o.member) for o in group.offsets] == [(9, 4, "c"), (4, 0, "")]
    assert group.lag == 4


def test_a_lag_that_nobody_knows_is_not_guessed() -> None:
    assert read(answer()).with_ends({("orders", 0): 9}).lag is None


def test_of_two_brokers_that_tell_a_group_the_one_with_its_members_counts() -> None:
    superseded, coordinator = read(answer(1, members=0)), read(answer(2))
    assert [group.coordinator for group in merged([superseded, coordinator])] == [2]


@pytest.mark.parametrize("body", [None, [], {}, {"broker_id": 1, "is_loading": 0, "groups": [{}]}])
def test_what_is_no_answer_is_said_to_be_none(body: Any) -> None:
    with pytest.raises(UnreadableResponse):
        read_groups(body)
