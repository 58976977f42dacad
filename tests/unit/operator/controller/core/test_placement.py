"""Where replicas go: the placement formula and its limits."""

import pytest
from tidemark_operator.controller.core.placement import TooFewBrokers, place
from tidemark_protocol.ids import BrokerId

IDS = [BrokerId(i) for i in (0, 1, 2)]


def test_replica_j_of_partition_i_is_on_broker_i_plus_j() -> None:
    assert place(4, 2, IDS) == ((0, 1), (1, 2), (2, 0), (0, 1))


def test_added_partitions_go_on_where_the_topic_ended() -> None:
    assert place(2, 2, IDS, first_partition=4) == ((1, 2), (2, 0))


def test_broker_ids_need_not_be_dense_nor_sorted() -> None:
    assert place(2, 2, [BrokerId(7), BrokerId(3)]) == ((3, 7), (7, 3))


def test_too_few_brokers_says_which_number_to_change() -> None:
    with pytest.raises(TooFewBrokers, match=r"lower replicationFactor to 3 or raise .* to 4"):
        place(1, 4, IDS)


@pytest.mark.parametrize(("partitions", "replicas"), [(0, 1), (1, 0), (-1, 1)])
def test_nonsense_counts_are_refused(partitions: int, replicas: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        place(partitions, replicas, IDS)


def racks(*names: str) -> dict[BrokerId, str]:
    return {BrokerId(number): name for number, name in enumerate(names)}


def test_replicas_are_on_distinct_racks_while_there_are_enough() -> None:
    ids = [BrokerId(number) for number in range(6)]
    where = racks("a", "a", "b", "b", "c", "c")
    for replicas in place(12, 3, ids, racks=where):
        assert {where[broker_id] for broker_id in replicas} == {"a", "b", "c"}


def test_with_fewer_racks_than_replicas_each_has_its_share_and_brokers_stay_distinct() -> None:
    ids = [BrokerId(number) for number in range(4)]
    where = racks("a", "a", "b", "b")
    for replicas in place(8, 3, ids, racks=where):
        assert len(set(replicas)) == 3
        assert {where[broker_id] for broker_id in replicas} == {"a", "b"}
    for replicas in place(8, 4, ids, racks=where):
        assert len(set(replicas)) == 4


def test_leaders_are_spread_over_racks_and_brokers() -> None:
    ids = [BrokerId(number) for number in range(6)]
    leaders = [replicas[0] for replicas in place(6, 3, ids, racks=racks(*"aaabbb"))]
    assert sorted(leaders) == ids
    assert leaders[:2] == [0, 3]


def test_uneven_racks_are_no_obstacle() -> None:
    ids = [BrokerId(number) for number in range(4)]
    where = racks("a", "a", "a", "b")
    for replicas in place(8, 2, ids, racks=where):
        assert {where[broker_id] for broker_id in replicas} == {"a", "b"}


def test_one_rack_is_as_none() -> None:
    assert place(5, 3, IDS, racks=racks("a", "a", "a")) == place(5, 3, IDS)
