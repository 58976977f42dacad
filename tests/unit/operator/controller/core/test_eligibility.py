"""Which entries are valid, who may lead, and which entries get a new epoch (S2, S9)."""

from typing import Any

import pytest
from tidemark_operator.controller.core.eligibility import may_renew
from tidemark_protocol.ids import BrokerEpoch, BrokerId

from tests.support.controller_values import (
    REPLICA,
    TOPIC_ID,
    broker_eligibility,
    eligibility,
    member,
)

BROKER = BrokerId(0)
OTHER_REPLICA = (TOPIC_ID, 1)
ALL_LOST = {"lost_replicas": frozenset({REPLICA}), "lost_below": BrokerEpoch(7)}


def test_entries_of_a_broker_without_a_record_are_kept_and_it_leads_nothing() -> None:
    brokers = eligibility()
    assert brokers.of(BROKER) is None
    assert brokers.is_valid(member("0@1"), REPLICA, "Os")
    assert brokers.renewed(member("0@1"), REPLICA, "Os") == member("0@1")
    assert not brokers.is_active(BROKER, REPLICA)
    assert not brokers.may_lead_on(BROKER, BrokerEpoch(1))
    assert not brokers.can_write(BROKER)


def test_entries_are_valid_from_the_first_clean_epoch_on() -> None:
    brokers = eligibility(broker_eligibility("0@7", clean_since=5))
    found = [brokers.is_valid(member(f"0@{epoch}"), REPLICA, "Os") for epoch in (4, 5, 7)]
    assert found == [False, True, True]


def test_a_lost_replica_is_valid_only_by_an_entry_of_the_epoch_that_found_the_loss() -> None:
    brokers = eligibility(broker_eligibility("0@7", **ALL_LOST))
    found = [brokers.is_valid(member(f"0@{epoch}"), REPLICA, "Os") for epoch in (6, 7, 8)]
    assert found == [False, True, False]
    assert brokers.is_valid(member("0@6"), OTHER_REPLICA, "Os")


def test_a_failed_replica_is_invalid_in_any_epoch_and_costs_no_other_one() -> None:
    brokers = eligibility(broker_eligibility("0@7", failed_replicas=frozenset({REPLICA})))
    assert not brokers.is_valid(member("0@7"), REPLICA, "Os")
    assert brokers.is_valid(member("0@7"), OTHER_REPLICA, "Os")
    assert (brokers.is_active(BROKER, REPLICA), brokers.is_active(BROKER, OTHER_REPLICA)) == (
        False,
        True,
    )


@pytest.mark.parametrize(
    ("changes", "leads"),
    [
        ({}, True),
        ({"is_live": False}, False),
        ({"is_stopping": True}, False),
        ({"is_write_stalled": True}, True),
    ],
)
def test_only_a_live_broker_that_is_not_stopping_leads(
    changes: dict[str, Any], leads: bool
) -> None:
    brokers = eligibility(broker_eligibility("0@7", **changes))
    assert brokers.is_active(BROKER, REPLICA) is leads
    assert brokers.may_lead_on(BROKER, BrokerEpoch(7)) is leads
    assert not brokers.may_lead_on(BROKER, BrokerEpoch(6))
    assert not brokers.may_lead_on(BROKER, BrokerEpoch(8))
    assert brokers.can_write(BROKER) is not changes.get("is_write_stalled", False)


@pytest.mark.parametrize(
    ("changes", "is_renewed"),
    [
        ({}, True),
        ({"is_live": False}, False),
        ({"is_stopping": True}, True),
        ({"has_spoken": False}, False),
        ({"unannounced_replicas": frozenset({REPLICA})}, False),
        ({"unannounced_replicas": frozenset({OTHER_REPLICA})}, True),
    ],
)
def test_entries_of_live_brokers_that_reported_get_the_present_epoch(
    changes: dict[str, Any], is_renewed: bool
) -> None:
    broker = broker_eligibility("0@7", **changes)
    assert may_renew(broker, REPLICA) is is_renewed
    renewed = eligibility(broker).renewed(member("0@5"), REPLICA, "Os")
    assert renewed == member("0@7" if is_renewed else "0@5")
