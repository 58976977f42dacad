"""How partitions begin that no slice has yet, and whose reports they wait for (S14, S17)."""

import pytest
from tidemark_operator.api.unclean_election import UncleanCause
from tidemark_operator.controller.core.new_partitions import (
    Beginning,
    MissingReports,
    NoLiveReplica,
    unheard,
)
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_protocol.ids import BrokerId

from tests.support.command_player import hear_all, pool_state
from tests.support.controller_values import REPLICA, TOPIC_ID, report, shown, topic

REPLICAS = (BrokerId(1), BrokerId(0), BrokerId(2))


def with_a_log(*brokers: int, live: tuple[int, ...] = (0, 1, 2)) -> PoolState:
    """A pool in which these brokers reported a log of partition 0."""
    pool = pool_state(live=live)
    hear_all(pool)
    for number in brokers:
        pool.soft_state_of(BrokerId(number)).report = {REPLICA: report(0, 0)}
    return pool


def test_a_partition_of_which_nothing_is_known_begins_with_its_live_replicas() -> None:
    found = Beginning(pool_state(live=(0, 2), fenced=(1,)), topic()).of(0, REPLICAS)
    assert shown(found.partition) == "leader 0@7 epoch 0 isr [0@7 2@7] eligible [] pe 0"
    assert (found.partition.replicas, found.partition.min_insync_replicas) == (REPLICAS, 2)
    assert found.unclean_election is None


def test_a_partition_of_which_a_log_was_reported_begins_without_leader_and_isr() -> None:
    found = Beginning(with_a_log(0, 3, live=(0, 1, 2, 3)), topic()).of(0, REPLICAS)
    assert shown(found.partition) == "leader -1@-1 epoch 1 isr [] eligible [] pe 1"
    assert found.partition.replicas == (*REPLICAS, 3)
    assert found.unclean_election is not None
    assert found.unclean_election.cause is UncleanCause.RESTORED
    assert found.unclean_election.leader_epoch == 1


def test_a_partition_that_was_durable_once_begins_above_its_epochs() -> None:
    pool = pool_state()
    pool.held.note(REPLICA, 5, 9, version=0)
    found = Beginning(pool, topic()).of(0, REPLICAS)
    assert shown(found.partition) == "leader -1@-1 epoch 6 isr [] eligible [] pe 10"


def test_without_a_live_replica_only_a_partition_with_a_past_may_begin() -> None:
    empty = Beginning(pool_state(live=(3,), fenced=(0, 1, 2)), topic())
    for begin in (empty.check, empty.of):
        with pytest.raises(NoLiveReplica, match=r"partition 0: none of brokers \[1, 0, 2\]"):
            begin(0, REPLICAS)
    beginning = Beginning(with_a_log(3, live=(3,)), topic())
    beginning.check(0, REPLICAS)
    assert not beginning.of(0, REPLICAS).partition.has_leader


def test_live_brokers_without_a_report_are_missing_in_order() -> None:
    pool = pool_state(live=(2, 0, 1), fenced=(3,))
    assert unheard(pool, TOPIC_ID, [0]) == MissingReports(
        0, (BrokerId(0), BrokerId(1), BrokerId(2))
    )
    hear_all(pool)
    assert unheard(pool, TOPIC_ID, [0]) is None


def test_reports_from_before_a_known_epoch_do_not_count_for_its_partition() -> None:
    pool = with_a_log()
    pool.held.note((TOPIC_ID, 1), 5, 9, version=pool.image.version + 1)
    assert unheard(pool, TOPIC_ID, [0]) is None
    missing = unheard(pool, TOPIC_ID, [0, 1])
    assert missing is not None
    assert missing.since_version == pool.image.version + 1
