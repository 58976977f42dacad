"""Runs whose senders have tokens: who is answered, and what an outage of reviews costs."""

import pytest
from tidemark_operator.security.rejections import Reason
from tidemark_protocol.ids import BrokerId

from tests.simulation.engine.run import run_seed
from tests.simulation.engine.shape import Shape
from tests.simulation.engine.simulated_cluster import Cluster, ClusterOptions
from tests.simulation.faults import identity_faults
from tests.simulation.faults.faults import heal
from tests.simulation.faults.identity_faults import (
    HOW,
    IDENTITIES,
    REJECTED,
    end_certificate,
    impersonate_broker,
    reviews_away,
)
from tests.simulation.test_simulated_cluster import ends, leader_of, produce, started

WITH_TOKENS = ClusterOptions(has_identities=True)
SECOND_US = 1_000_000


def leadership(cluster: Cluster) -> list[tuple[int, int, int]]:
    """(partition, leader, leader epoch) of what is led."""
    return sorted(
        (replica.partition, int(slot.broker_id), int(replica.leader.state.leader_epoch))
        for slot in cluster.brokers.values()
        for replica in (slot.partitions.replicas if slot.partitions else ())
        if replica.leader is not None
    )


@pytest.mark.parametrize("how", HOW)
def test_an_impersonator_is_rejected_and_changes_no_leadership(how: str) -> None:
    with Cluster(1, WITH_TOKENS) as cluster:
        started(cluster)
        before = leadership(cluster)
        for number in range(3):
            impersonate_broker(cluster, number, how, SECOND_US)
        cluster.run_for(11_000)
        assert cluster.crashes == []
        assert cluster.coverage[REJECTED] > 10
        assert leadership(cluster) == before


def test_an_impersonator_that_is_answered_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        identity_faults,
        "_token",
        lambda identities, victim, *_: identities.token_of(victim.broker_id, victim.pod_uid),
    )
    with Cluster(1, WITH_TOKENS) as cluster:
        started(cluster)
        impersonate_broker(cluster, 0, "other", SECOND_US)
        cluster.run_for(1_000)
        assert "S33" in str(cluster.crashes[0].error)


def test_a_token_that_the_api_server_finds_valid_is_no_stolen_one() -> None:
    """Whatever the clock of a controller says that is ahead: seed 8400389."""
    with Cluster(1, WITH_TOKENS) as cluster:
        started(cluster)
        for controller in cluster.controllers:
            controller.machine.clock.wall_offset_us += 3_600 * SECOND_US
        other = cluster.brokers[BrokerId(1)].machine
        other.set_clock_rate(1_300_000)  # it waits for less than a token lives
        impersonate_broker(cluster, 0, "stolen", SECOND_US)
        cluster.run_for(9_000)
        assert cluster.crashes == []
        assert cluster.coverage[REJECTED] > 0


def test_a_process_of_a_deleted_pod_is_no_broker_any_more() -> None:
    with Cluster(2, WITH_TOKENS) as cluster:
        started(cluster)
        identities = cluster.identities
        assert identities is not None
        slot = leader_of(cluster)
        slot.delete_pod_by_force()
        former = slot.previous[0]
        cluster.run_for(4_000)
        assert identities.rejected_as.keys() & {Reason.INVALID_TOKEN, Reason.NOT_A_BROKER}
        former.kill()
        cluster.run_for(6_000)
        produce(cluster, "a")
        cluster.run_for(500)
        assert ends(cluster) == {0: (1, 1), 1: (1, 1), 2: (1, 1)}


def test_while_reviews_are_away_known_brokers_go_on_and_new_tokens_are_rejected() -> None:
    with Cluster(3, WITH_TOKENS) as cluster:
        started(cluster)
        identities = cluster.identities
        assert identities is not None
        before = leadership(cluster)
        reviews_away(cluster, 3 * SECOND_US)
        cluster.run_for(2_500)
        assert leadership(cluster) == before
        assert identities.rejected_as == {}
        slot = leader_of(cluster)
        slot.delete_pod_by_force()  # its successor has a token that nobody knows
        slot.previous[0].kill()
        cluster.run_for(400)
        assert identities.rejected_as[Reason.NOT_REVIEWED] > 0
        cluster.run_for(6_000)
        produce(cluster, "a")
        cluster.run_for(1_000)
        assert ends(cluster) == {0: (1, 1), 1: (1, 1), 2: (1, 1)}
        assert cluster.crashes == []


def test_a_broker_whose_certificate_ended_is_out_of_sync_until_it_is_renewed() -> None:
    with Cluster(4, WITH_TOKENS) as cluster:
        started(cluster)
        leader = leader_of(cluster)
        follower = next(slot for slot in cluster.brokers.values() if slot is not leader)
        end_certificate(cluster, int(follower.broker_id), 3 * SECOND_US)
        produce(cluster, "a")
        cluster.run_for(2_000)
        assert ends(cluster)[int(follower.broker_id)][1] == 0
        cluster.run_for(4_000)
        assert ends(cluster) == {0: (1, 1), 1: (1, 1), 2: (1, 1)}


def test_a_tenth_of_all_seeds_has_identities() -> None:
    drawn = [IDENTITIES in Shape.of(seed).additions for seed in range(400)]
    assert 20 < sum(drawn) < 60
    assert IDENTITIES in Shape.of(1, IDENTITIES).additions


def test_healing_ends_an_outage_of_reviews() -> None:
    with Cluster(5, WITH_TOKENS) as cluster:
        started(cluster)
        reviews_away(cluster, 60 * SECOND_US)
        heal(cluster)
        assert cluster.identities is not None and not cluster.identities.is_away


def test_a_run_of_the_profile_holds() -> None:
    result = run_seed(1, 8.0, IDENTITIES)
    assert result.violation is None
    assert result.coverage[REJECTED] > 0
