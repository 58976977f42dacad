"""A lossy way out is advised only once a partition has had no leader for a while."""

from tidemark_operator.controller.core.elections import NO_EVIDENCE
from tidemark_operator.controller.core.leaderless_reasons import leaderless_sentence
from tidemark_operator.controller.core.observations import LEADERLESS_GRACE_MS, LeaderlessSince
from tidemark_protocol.ids import TopicId

from tests.support.controller_values import dead, eligibility, partition, topic

ORDERS = TopicId("orders-id")
STATE = partition("", eligible="0@1", leader_epoch=6)


def test_lossy_way_out_is_not_advised_while_brokers_may_be_starting() -> None:
    brokers = eligibility(dead("0@1"), "1@12", "2@13")
    said = leaderless_sentence(topic(), STATE, brokers, NO_EVIDENCE, is_lasting=False)
    assert said.startswith("partition 0 has no leader: only brokers 0 are known to hold")
    assert said.endswith("wait, they may be starting")


def test_lossy_way_out_is_a_command_of_both_modes() -> None:
    brokers = eligibility(dead("0@1"), "1@12", "2@13")
    said = leaderless_sentence(topic(), STATE, brokers, NO_EVIDENCE)
    assert f"tidemark elect {topic().topic} 0 1" in said
    assert "Only if they are lost permanently" in said


def test_grace_begins_when_a_partition_is_first_seen_without_a_leader() -> None:
    since = LeaderlessSince()
    since.tick(1000)
    assert not since.is_lasting(ORDERS, STATE)
    since.tick(999 + LEADERLESS_GRACE_MS)
    assert not since.is_lasting(ORDERS, STATE)
    since.tick(1000 + LEADERLESS_GRACE_MS)
    assert since.is_lasting(ORDERS, STATE)
    again = partition("", eligible="0@1", leader_epoch=7)  # it was led in between
    assert not since.is_lasting(ORDERS, again)
