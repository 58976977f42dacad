"""Where replicas go: the placement formula and its limits."""

import pytest
from tidemark_operator.controller.placement import TooFewBrokers, place
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
