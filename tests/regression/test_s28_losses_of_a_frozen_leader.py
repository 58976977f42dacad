"""What an unclean election cost is recorded also when the old leader did not die: it stood still,
or was cut off, and cuts what it had committed only when it comes back as a follower.

Whole processes in virtual time; each test loses seven committed records.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tidemark_broker.replication.partition import MAX_REPORTED, CommittedTruncations
from tidemark_operator.api.kinds import PARTITION_SLICE
from tidemark_operator.api.unclean_election import UncleanCause, UncleanElection
from tidemark_protocol.controller_messages import CommittedTruncation, ReplicaReport
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_EPOCH, BrokerId, LeaderEpoch, Offset, TopicId

from tests.simulation.engine.broker_process import BrokerSlot
from tests.simulation.engine.simulated_cluster import Cluster, ClusterOptions
from tests.simulation.faults.faults import isolate, kill_controller
from tests.simulation.faults.triggered_faults import keep_down
from tests.simulation.test_simulated_cluster import ends, leader_of, produce

UNCLEAN = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(28) as cluster:
        cluster.start()
        cluster.create_topic("orders", partitions=1, replication_factor=3, config=UNCLEAN)
        cluster.run_for(2_000)
        yield cluster


def unclean_election(cluster: Cluster) -> dict[str, Any]:
    """The one that is stored."""
    (item,) = cluster.store.objects(PARTITION_SLICE)
    (found,) = item["recoveries"]
    assert isinstance(found, dict)
    return found


def lost(cluster: Cluster) -> tuple[int, int]:
    """(records, those below a high watermark)."""
    found = unclean_election(cluster)
    return found["lostRecords"], found["lostCommitted"]


def alone_with_seven_records(cluster: Cluster) -> BrokerSlot:
    """Of twelve, all committed; the other brokers have five and are about to come back."""
    everywhere = produce(cluster, *(f"everywhere {number}" for number in range(5)))
    cluster.run_for(500)
    leader = leader_of(cluster)
    for number, slot in enumerate(cluster.brokers.values()):
        if slot is not leader:
            keep_down(cluster, number, 3_000_000)
    cluster.run_for(2_000)
    alone = produce(cluster, *(f"here alone {number}" for number in range(7)))
    cluster.run_for(200)
    assert [result.error for result in everywhere + alone] == [ErrorCode.NONE] * 2
    assert ends(cluster) == {int(leader.broker_id): (12, 12)}
    return leader


def another_leads(cluster: Cluster, previous: BrokerSlot) -> None:
    """The others are back; the former leader's session runs out; whoever leads now goes on."""
    cluster.run_for(6_000)
    (item,) = cluster.store.objects(PARTITION_SLICE)
    (state,) = item["partitions"]
    assert state["leader"] not in (-1, previous.broker_id)
    assert (unclean_election(cluster)["startOffset"], lost(cluster)) == (5, (0, 0))


def test_a_leader_that_thaws_reports_what_it_cuts(cluster: Cluster) -> None:
    previous = alone_with_seven_records(cluster)
    assert previous.process is not None
    previous.process.freeze()
    another_leads(cluster, previous)
    previous.process.thaw()
    cluster.run_for(2_000)
    assert ends(cluster)[int(previous.broker_id)] == (5, 5)
    assert lost(cluster) == (7, 7)


def test_a_leader_that_was_cut_off_reports_it_too(cluster: Cluster) -> None:
    previous = alone_with_seven_records(cluster)
    isolate(cluster, previous.machine.name, "both", 6_000_000)
    another_leads(cluster, previous)
    cluster.run_for(3_000)
    assert lost(cluster) == (7, 7)


def test_it_is_reported_until_a_controller_recorded_it_and_counted_once(cluster: Cluster) -> None:
    previous = alone_with_seven_records(cluster)
    assert previous.process is not None and previous.broker is not None
    previous.process.freeze()
    another_leads(cluster, previous)
    truncations = previous.broker.partitions.committed_cuts
    cluster.store.is_down = True
    previous.process.thaw()
    cluster.run_for(3_000)
    assert ends(cluster)[int(previous.broker_id)] == (5, 5)
    assert (len(truncations.unrecorded()), lost(cluster)) == (1, (0, 0))
    for number in range(len(cluster.controllers)):
        kill_controller(cluster, number)
    cluster.store.is_down = False
    cluster.run_for(12_000)
    assert (truncations.unrecorded(), lost(cluster)) == ((), (7, 7))


def test_what_compaction_left_empty_over_the_cut_is_no_loss() -> None:
    """Seed 41011 of the simulator: the cut takes the whole run, its leader has the beginning."""
    config = {**UNCLEAN, "cleanup.policy": "compact", "segment.ms": "100"}
    with Cluster(28, ClusterOptions(log_cleaner_backoff_seconds=0.3)) as cluster:
        cluster.start()
        cluster.create_topic("orders", partitions=1, replication_factor=3, config=config)
        cluster.run_for(2_000)
        produce(cluster, *"12345", key=b"a")
        cluster.run_for(500)
        previous = leader_of(cluster)
        for number, slot in enumerate(cluster.brokers.values()):
            if slot is not previous:
                keep_down(cluster, number, 3_000_000)
        cluster.run_for(2_000)
        for later_ms, values, key in ((1_000, "67", b"a"), (2_000, "8", b"a"), (3_000, "9", b"b")):
            produce(cluster, *values, key=key, timestamp_ms=1_700_000_000_000 + later_ms)
        cluster.run_for(800)
        assert ends(cluster) == {int(previous.broker_id): (9, 9)}
        assert previous.process is not None and previous.partitions is not None
        (replica,) = previous.partitions.replicas
        assert replica.log.segments[0].find(Offset(4)).header.last_offset == 6
        previous.process.freeze()
        another_leads(cluster, previous)
        previous.process.thaw()
        cluster.run_for(2_000)
        assert ends(cluster)[int(previous.broker_id)] == (5, 5)
        assert lost(cluster) == (4, 4)


# The arithmetic.

TAKEN = UncleanElection(0, UncleanCause.UNCLEAN, LeaderEpoch(7), BrokerId(2), Offset(60))
CUT = CommittedTruncation(
    TopicId("t"), 0, LeaderEpoch(8), Offset(60), LeaderEpoch(5), Offset(90), Offset(85)
)


def test_what_was_cut_counts_from_where_the_two_histories_part() -> None:
    """Also below the new leader's start: its own last records may be another former epoch's."""
    found = TAKEN.with_truncations([CUT])
    assert (found.lost_records, found.lost_committed) == (30, 25)
    found = found.with_truncations([replace(CUT, to_offset=Offset(50))])
    assert (found.lost_records, found.lost_committed) == (40, 35)


def test_a_watermark_past_the_end_of_its_own_log_counts_as_no_loss() -> None:
    """Seed 20263 of the simulator: a power loss took the new history from a log, which was back in
    a former epoch, and left the watermark."""
    found = TAKEN.measured([ReplicaReport(TopicId("t"), 0, LeaderEpoch(5), Offset(58), Offset(90))])
    assert found is TAKEN
    found = TAKEN.measured([ReplicaReport(TopicId("t"), 0, LeaderEpoch(5), Offset(70), Offset(90))])
    assert (found.lost_records, found.lost_committed) == (10, 10)


def test_a_log_that_was_dropped_and_began_anew_holds_no_former_history() -> None:
    """Seed 15000225 of the simulator: it had been away for longer than its leader keeps records."""
    empty = ReplicaReport(TopicId("t"), 0, LeaderEpoch(NO_EPOCH), Offset(100), Offset(100))
    assert TAKEN.measured([empty]) is TAKEN


def test_the_same_cut_or_a_lesser_one_changes_nothing() -> None:
    found = TAKEN.with_truncations([CUT])
    lesser = replace(CUT, log_end_offset=Offset(70), high_watermark=Offset(65))
    assert found.with_truncations([CUT, lesser]) is found


@pytest.mark.parametrize(
    "other",
    [replace(CUT, leader_epoch=LeaderEpoch(6)), replace(CUT, last_epoch=LeaderEpoch(7))],
    ids=["an earlier election's", "a later election's"],
)
def test_a_cut_counts_for_the_history_that_it_leads_into(other: CommittedTruncation) -> None:
    assert TAKEN.with_truncations([other]) is TAKEN


def test_a_cut_that_grew_since_it_was_sent_is_sent_again() -> None:
    truncations = CommittedTruncations()
    truncations.note(CUT)
    sent = truncations.unrecorded()
    grown = replace(CUT, to_offset=Offset(50))
    truncations.note(grown)
    truncations.record_recorded(sent)
    assert truncations.unrecorded() == (grown,)
    truncations.record_recorded((grown,))
    assert truncations.unrecorded() == ()


def test_one_heartbeat_carries_a_bounded_number() -> None:
    truncations = CommittedTruncations()
    for number in range(MAX_REPORTED + 1):
        truncations.note(replace(CUT, partition=number))
    first = truncations.unrecorded()
    truncations.record_recorded(first)
    assert (len(first), len(truncations.unrecorded())) == (MAX_REPORTED, 1)
