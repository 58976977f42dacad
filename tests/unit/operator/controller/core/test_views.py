"""What reconcilers and status pages see: election counts and active brokers."""

import pytest
from tidemark_operator.controller.core.views import BrokerView, ElectionCounts, ElectionKind
from tidemark_protocol.ids import BrokerEpoch, BrokerId, TopicId

from tests.support.broker_records import NOWHERE
from tests.support.controller_values import REPLICA, TOPIC_ID

NONE = dict.fromkeys(ElectionKind, 0)
CLEAN, UNCLEAN = ElectionKind.CLEAN, ElectionKind.UNCLEAN


def test_elections_are_counted_by_partition_and_kind() -> None:
    counts = ElectionCounts()
    for kind in (CLEAN, CLEAN, UNCLEAN):
        counts.note(REPLICA, kind)
    assert counts.of(REPLICA) == NONE | {CLEAN: 2, UNCLEAN: 1}
    assert counts.of((TOPIC_ID, 1)) == NONE


def test_looking_at_a_partition_without_elections_counts_nothing() -> None:
    counts = ElectionCounts()
    counts.of(REPLICA)[CLEAN] += 1
    assert counts.of(REPLICA) == NONE


def test_counts_of_a_forgotten_topic_begin_again_and_others_stay() -> None:
    counts = ElectionCounts()
    other = (TopicId("other"), 0)
    for replica in (REPLICA, (TOPIC_ID, 1), other):
        counts.note(replica, CLEAN)
    counts.forget(TOPIC_ID)
    counts.forget(TopicId("unknown"))
    assert [counts.of(each)[CLEAN] for each in (REPLICA, (TOPIC_ID, 1), other)] == [0, 0, 1]


@pytest.mark.parametrize("state", ["Starting", "Active", "Fenced", "Draining", "Gone"])
def test_a_broker_is_active_in_one_state_only(state: str) -> None:
    view = BrokerView(BrokerId(0), BrokerEpoch(7), state, NOWHERE, "", "first")
    assert view.is_active is (state == "Active")
