"""Each event says in one sentence what changed and why."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest
from tidemark_operator.api.unclean_election import UncleanCause, UncleanElection
from tidemark_operator.controller.core.elections import LeaderCounts
from tidemark_operator.controller.core.eligibility import BrokerEligibility, Eligibility
from tidemark_operator.controller.core.event_texts import (
    document_of,
    is_warning,
    kind_of,
    sentence_of,
    standing,
)
from tidemark_operator.controller.core.timeline import (
    ActionRequested,
    BrokerChanged,
    BrokerTurn,
    Cause,
    ControllerTookOver,
    Event,
    Fact,
    Grounds,
    PageAction,
    PartitionChanged,
    PartitionsCreated,
    RollStep,
    TopicRetired,
)
from tidemark_protocol.controller_messages import encode
from tidemark_protocol.ids import NO_BROKER, BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch
from tidemark_protocol.partition_state import PartitionState

from tests.support.controller_values import (
    REPLICA,
    after,
    broker_eligibility,
    dead,
    eligibility,
    partition,
    topic,
)

LED = partition("0@7 1@7 2@7", leader="0@7")
FENCED_AT: Mapping[BrokerId, int] = MappingProxyType({BrokerId(0): 5000})
FENCE_OF_0 = eligibility(dead("0@7"), "1@7", "2@7")


def event(fact: Fact) -> Event:
    return Event(4, 5080, fact)


def change(
    before: PartitionState,
    now: PartitionState,
    brokers: Eligibility,
    *,
    cause: Cause = Cause.EVALUATION,
    counts: tuple[int, ...] = (0, 0, 0),
    proposer: int = NO_BROKER,
    fenced: Mapping[BrokerId, int] = FENCED_AT,
) -> Event:
    grounds = Grounds(now, cause, brokers, counts, BrokerId(proposer))
    return event(PartitionChanged(topic(), before, now, grounds, "clean", None, fenced))


def elected(brokers: Eligibility, *counts: int) -> Event:
    known = LeaderCounts()
    now = after(LED, brokers, counts=known)
    return change(LED, now, brokers, counts=counts)


def test_a_leader_is_chosen_for_its_fewest_leaderships() -> None:
    now = partition("1@7 2@7", leader="2@7", leader_epoch=6, partition_epoch=10)
    found = change(LED, now, FENCE_OF_0, counts=(4, 5, 3))
    assert kind_of(found) == "LeaderElected"
    assert sentence_of(found) == (
        "orders-0: broker 2 leads under leader epoch 6, chosen: in sync, fewest leaderships (2);"
        " broker 0 passed over: fenced 80 ms ago; broker 1 passed over: in sync, 5 leaderships;"
        " ISR is 1, 2"
    )


def test_among_equals_the_first_in_order_is_chosen() -> None:
    assert "chosen: in sync, first in the order of assignment among those with 2 leaderships;" in (
        sentence_of(elected(FENCE_OF_0, 0, 3, 2))
    )


def test_the_only_active_replica_is_named_as_that() -> None:
    brokers = eligibility(dead("0@7"), "1@7", dead("2@7"))
    text = sentence_of(elected(brokers, 0, 1, 0))
    assert "broker 1 leads under leader epoch 6, chosen: in sync, the only one that is active" in (
        text
    )
    assert "broker 2 passed over: fenced;" in text  # since when is not known


def test_a_partition_that_loses_its_leader_says_why_nobody_follows() -> None:
    alone = partition("0@7", leader="0@7", eligible="1@7")
    brokers = eligibility(dead("0@7"), dead("1@7"), "2@7")
    found = change(alone, after(alone, brokers), brokers)
    assert kind_of(found) == "LeaderLost" and is_warning(found)
    assert sentence_of(found).startswith(
        "orders-0: broker 0 leads no more, no leader can be elected; broker 0 passed over:"
        " fenced 80 ms ago; broker 1 passed over: fenced; broker 2 passed over: not in sync"
    )


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (Cause.BALANCE, "epoch 6: leadership returns to the first replica"),
        (Cause.REQUEST, "epoch 6: a client asked for the preferred leader"),
        (
            Cause.STALLED_DISK,
            "epoch 6, chosen: the disk of broker 0 takes no writes; broker 0 passed over: in sync,"
            " 1 leadership; broker 2 passed over: in sync, 1 leadership",
        ),
    ],
)
def test_a_leader_that_no_failure_brought_has_its_own_reason(cause: Cause, words: str) -> None:
    now = partition("0@7 1@7 2@7", leader="1@7", leader_epoch=6, partition_epoch=10)
    found = change(LED, now, eligibility("0@7", "1@7", "2@7"), cause=cause, counts=(1, 2, 1))
    assert sentence_of(found) == f"orders-0: broker 1 leads under leader {words}"


def test_an_unclean_election_says_what_it_cost() -> None:
    now = partition("2@7", leader="2@7", leader_epoch=6, partition_epoch=10)
    election = UncleanElection(0, UncleanCause.CHOSEN, LeaderEpoch(6), BrokerId(2))
    found = event(PartitionChanged(topic(), LED, now, None, "unclean", election))
    assert kind_of(found) == "UncleanElection" and is_warning(found)
    assert "(unclean election): partition 0: a person chose the leader" in sentence_of(found)


def test_a_follower_that_the_leader_removes_did_not_catch_up_in_time() -> None:
    now = partition("0@7 1@7", leader="0@7", partition_epoch=10)
    brokers = eligibility("0@7", "1@7", "2@7")
    found = change(LED, now, brokers, cause=Cause.PROPOSAL, proposer=0)
    assert kind_of(found) == "IsrShrunk" and is_warning(found)
    assert sentence_of(found) == (
        "orders-0: ISR is 0, 1; broker 2 removed: leader 0 found it not caught up for"
        " replica.lag.time.max.ms (10000 ms)"
    )


def test_a_follower_that_caught_up_is_no_warning() -> None:
    before = partition("0@7", leader="0@7")
    found = change(before, LED, eligibility("0@7"), cause=Cause.PROPOSAL, proposer=0)
    assert kind_of(found) == "IsrExpanded" and not is_warning(found)
    assert sentence_of(found) == "orders-0: ISR is 0, 1, 2; brokers 1, 2 caught up"


def test_a_rejected_proposal_is_an_event_of_its_own() -> None:
    now = partition("0@7 1@7 2@7", leader="0@7", partition_epoch=10)
    found = change(LED, now, eligibility("0@7"), cause=Cause.REJECTION, proposer=0)
    assert kind_of(found) == "IsrChangeRejected"
    assert "ISR change of leader 0 rejected" in sentence_of(found)


def test_begin_and_end_of_a_reassignment_name_both_sides() -> None:
    moving = partition(
        "0@7 1@7 2@7", leader="0@7", replicas=(3, 0, 1, 2), adding=(3,), removing=(2,)
    )
    began = change(LED, moving, eligibility("0@7"), cause=Cause.REASSIGNMENT)
    assert kind_of(began) == "ReassignmentStarted"
    assert "reassignment from brokers 0, 1, 2 to 3, 0, 1 started" in sentence_of(began)
    done = partition("0@7 1@7 3@7", leader="0@7", replicas=(3, 0, 1), partition_epoch=11)
    ended = change(moving, done, eligibility("0@7"))
    assert kind_of(ended) == "ReassignmentCompleted"
    assert "broker 2 removed: no replica any more" in sentence_of(ended)
    assert sentence_of(ended).endswith("reassignment to brokers 3, 0, 1 completed")


def test_a_change_read_from_the_store_has_no_reason_to_tell() -> None:
    now = partition("1@7 2@7", leader="1@7", leader_epoch=6, partition_epoch=10)
    found = event(PartitionChanged(topic(), LED, now))
    assert sentence_of(found) == (
        "orders-0: broker 1 leads under leader epoch 6; ISR is 1, 2; broker 0 removed:"
        " not registered"
    )


@pytest.mark.parametrize(
    ("fact", "kind", "sentence"),
    [
        (
            BrokerChanged(BrokerTurn.FENCED, BrokerId(1), BrokerEpoch(7), "session timeout", 1502),
            "BrokerFenced",
            "broker 1 is fenced: session timeout, last heartbeat 1502 ms ago",
        ),
        (
            BrokerChanged(BrokerTurn.ACTIVE, BrokerId(1), BrokerEpoch(7)),
            "BrokerActive",
            "broker 1 is active: it may lead and join the ISR",
        ),
        (
            PartitionsCreated(topic(), (LED,)),
            "PartitionsCreated",
            "1 partition of topic orders created with 3 replicas each",
        ),
        (
            TopicRetired(topic(), is_retained=True),
            "TopicRetained",
            "topic orders is not served any more, its data is retained",
        ),
        (
            ControllerTookOver(ControllerEpoch(9), 3, 1),
            "ControllerTookOver",
            "this controller took over under controller epoch 9 with 3 brokers and 1 partition",
        ),
        (RollStep(NO_BROKER, True, "waiting: broker 1 is away"), "RollWaits", None),
        (
            ActionRequested(PageAction.DRAIN, BrokerId(1), "10.0.0.4"),
            "ActionRequested",
            "drain of broker 1 requested on the live page from 10.0.0.4",
        ),
        (
            ActionRequested(PageAction.ELECT, BrokerId(1), "10.0.0.4", topic(), 3),
            "ActionRequested",
            "election of broker 1, the preferred leader of orders-3, requested on the live page"
            " from 10.0.0.4",
        ),
    ],
)
def test_each_event_has_a_kind_and_a_sentence(fact: Fact, kind: str, sentence: str | None) -> None:
    assert kind_of(event(fact)) == kind
    assert sentence_of(event(fact)) == (sentence or "waiting: broker 1 is away")
    assert document_of(event(fact))["kind"] == kind
    assert encode(document_of(event(fact)))


def test_the_document_of_an_election_holds_its_operands() -> None:
    now = partition("1@7 2@7", leader="2@7", leader_epoch=6, partition_epoch=10)
    document = document_of(change(LED, now, FENCE_OF_0, counts=(4, 5, 3)))
    details = document["details"]
    assert isinstance(details, dict)
    assert details["considered"] == [
        {"brokerId": 0, "standing": "fenced", "leaderships": 4, "fencedMs": 80},
        {"brokerId": 1, "standing": "in sync", "leaderships": 5, "fencedMs": None},
        {"brokerId": 2, "standing": "in sync", "leaderships": 2, "fencedMs": None},
    ]
    assert (details["before"]["leaderEpoch"], details["after"]["leaderEpoch"]) == (5, 6)
    assert encode(document)


def test_a_brokers_standing_names_the_first_thing_in_its_way() -> None:
    state = partition("0@7 1@7", leader="0@7", eligible="2@7", replicas=(0, 1, 2, 3))

    def of(number: int, *brokers: BrokerEligibility | str) -> str:
        return standing(topic(), state, eligibility(*brokers), BrokerId(number))

    assert of(0) == "not registered"
    assert of(0, dead("0@7")) == "fenced"
    assert of(0, broker_eligibility("0@7", is_stopping=True)) == "draining"
    failed = broker_eligibility("0@7", failed_replicas=frozenset({REPLICA}))
    assert of(0, failed) == "its replica failed"
    assert of(3, "3@7") == "not in sync"
    void = broker_eligibility("0@8", clean_since=8)
    assert of(0, void) == "its log may lack committed records since its last start"
    stalled = broker_eligibility("0@7", is_write_stalled=True)
    assert of(0, stalled) == "in sync, but its disk takes no writes"
    assert (of(0, "0@7"), of(2, "2@7")) == ("in sync", "eligible leader")
