"""S14: what a start proves of the disk, and what entries of `flush: Always` topics are worth."""

from dataclasses import replace
from typing import Any

import pytest
from tidemark_operator.api.broker import (
    BrokerControlState,
    BrokerRecord,
    broker_object,
    read_broker,
)
from tidemark_operator.controller.core.elections import NO_EVIDENCE
from tidemark_operator.controller.core.isr import checked_proposal
from tidemark_operator.controller.core.leaderless_reasons import leaderless_sentence
from tidemark_operator.controller.core.registration import Accepted, decided
from tidemark_operator.controller.core.unclean_recovery import needs_reports
from tidemark_protocol.controller_messages import (
    BootRecord,
    Endpoints,
    RegisterRequest,
    StorageIdentity,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch

from tests.support.controller_harness import POOL
from tests.support.controller_values import (
    REPLICA,
    after,
    broker_eligibility,
    dead,
    eligibility,
    member,
    partition,
    proposal,
    reports,
    shown,
    topic,
)

NOWHERE = Endpoints("10.0.0.1", 9092, 8080, "http://x")
THEN = StorageIdentity("directory", "claim", "pod-1", "boot-1")
NOW = StorageIdentity("directory", "claim", "pod-2", "boot-2")
BOOT_RECORD = BootRecord("boot-1", "pod-1", "claim", BrokerEpoch(7))
STORED = BrokerRecord(
    pool=POOL,
    broker_id=BrokerId(0),
    broker_epoch=BrokerEpoch(7),
    clean_since=BrokerEpoch(5),
    disk_since=BrokerEpoch(3),
    controller_epoch=ControllerEpoch(1),
    state=BrokerControlState.FENCED,
    incarnation="former",
    endpoints=NOWHERE,
    rack="",
    storage=THEN,
    cluster_id="c",
)
ALWAYS = topic(flush="Always")


def since(stored: BrokerRecord | None = STORED, **changes: Any) -> tuple[int, int]:
    """(cleanSince, diskSince) after a start in epoch 8, after a power cut unless said otherwise."""
    request = RegisterRequest(
        POOL,
        BrokerId(0),
        "c",
        "present",
        NOWHERE,
        "",
        NOW,
        BrokerEpoch(-1),
        ControllerEpoch(-1),
        BrokerEpoch(-1),
        -1,
        (),
        disk_stamp=BOOT_RECORD,
    )
    outcome = decided(
        replace(request, **changes),
        stored=stored,
        highest_epoch=BrokerEpoch(7),
        cluster_id="c",
        controller_epoch=ControllerEpoch(1),
    )
    assert isinstance(outcome, Accepted)
    assert outcome.record.broker_epoch == 8
    return outcome.record.clean_since, outcome.record.disk_since


def test_a_power_cut_costs_what_was_in_memory_and_not_the_disk() -> None:
    assert since() == (8, 3)


def test_a_clean_start_keeps_both() -> None:
    assert since(clean_stop_epoch=BrokerEpoch(7), disk_stamp=None) == (5, 3)
    assert since(storage=THEN, boot_stamp=BOOT_RECORD) == (5, 3)


@pytest.mark.parametrize(
    "changes",
    [
        {"disk_stamp": None},
        {"disk_stamp": replace(BOOT_RECORD, broker_epoch=BrokerEpoch(6))},
        {"disk_stamp": replace(BOOT_RECORD, boot_id="boot-0")},
        {"disk_stamp": replace(BOOT_RECORD, claim_uid="other")},
        {"storage": replace(NOW, claim_uid="other")},
        {"storage": replace(NOW, claim_uid="")},
        {"storage": replace(NOW, directory_id="other")},
        {"stored": replace(STORED, clean_since=BrokerEpoch(8), disk_since=BrokerEpoch(8))},
        {"stored": replace(STORED, storage=StorageIdentity("directory"))},
        {"stored": None},
    ],
    ids=[
        "no stamp",
        "an earlier life's",
        "another boot's",
        "another claim's stamp",
        "another claim",
        "a claim not known",
        "another directory",
        "a storage failure was recorded",
        "nothing known of that life",
        "no life known",
    ],
)
def test_on_any_doubt_the_disk_is_another_one(changes: dict[str, Any]) -> None:
    assert since(**changes) == (8, 8)


def test_a_record_written_before_there_was_a_disk_epoch_is_read_by_its_clean_one() -> None:
    item = broker_object(STORED, None)
    assert read_broker(item) == STORED
    del item["status"]["storage"]["diskSince"]
    assert read_broker(item) == replace(STORED, disk_since=BrokerEpoch(5))


# What an entry of epoch 1 is worth, whose broker lives in epoch 11: its log was not whole.


KEPT = broker_eligibility("0@11", clean_since=11, disk_since=0)
LOST = broker_eligibility("0@11", clean_since=11, disk_since=11)


@pytest.mark.parametrize(
    ("flush", "broker", "is_valid"),
    [("Always", KEPT, True), ("Always", LOST, False), ("Os", KEPT, False), ("Os", LOST, False)],
)
def test_validity_goes_by_the_disk_where_the_topic_flushes_always(
    flush: str, broker: Any, is_valid: bool
) -> None:
    brokers = eligibility(broker)
    assert brokers.is_valid(member("0@1"), REPLICA, flush) is is_valid
    renewed = member("0@11") if is_valid else member("0@1")
    assert brokers.renewed(member("0@1"), REPLICA, flush) == renewed


@pytest.mark.parametrize(
    "loss",
    [
        {"lost_replicas": frozenset({REPLICA}), "lost_below": BrokerEpoch(11)},
        {"failed_replicas": frozenset({REPLICA})},
    ],
    ids=["missing or behind", "failed"],
)
def test_a_replica_that_is_lost_is_void_on_a_kept_disk_too(loss: dict[str, Any]) -> None:
    assert not eligibility(replace(KEPT, **loss)).is_valid(member("0@1"), REPLICA, "Always")


def test_who_kept_its_disk_leads_although_another_valid_entry_is_not_heard() -> None:
    state = partition("", eligible="0@1 1@2 2@3")
    brokers = eligibility(KEPT, dead("1@2"), dead("2@3"))
    assert shown(after(state, brokers, of=ALWAYS)) == (
        "leader 0@11 epoch 6 isr [0@11] eligible [1@2 2@3] pe 10"
    )
    found = after(state, brokers)  # from memory: it lost its log, the others may have it
    assert shown(found) == "leader -1@-1 epoch 5 isr [] eligible [1@2 2@3] pe 10"


def test_the_longest_log_is_taken_only_where_no_disk_is_left_that_proves_anything() -> None:
    state = partition("", eligible="0@1", leader_epoch=6, replicas=(0, 1))
    ends = reports(b0=(5, 70), b1=(5, 99))
    other = broker_eligibility("1@12", clean_since=12)
    assert after(state, eligibility(LOST, other), reports=ends, of=ALWAYS).leader == 1
    assert after(state, eligibility(KEPT, other), reports=ends, of=ALWAYS).leader == 0
    away = eligibility(replace(KEPT, is_live=False), other)
    assert after(state, away, reports=ends, of=ALWAYS) is state  # a valid entry is waited for
    assert not needs_reports(ALWAYS, state, away, None)
    assert "only brokers 0 are known to hold" in leaderless_sentence(
        ALWAYS, state, away, NO_EVIDENCE
    )
    nobody = eligibility(replace(KEPT, is_live=False), replace(other, is_live=False))
    said = leaderless_sentence(ALWAYS, state, nobody, NO_EVIDENCE)
    assert said.endswith(
        "and none of them is active; start at least one of brokers 0"
    )  # 1 would prove nothing


def test_the_last_member_stays_by_its_disk_where_the_isr_alone_commits() -> None:
    state = partition("0@1", leader_epoch=6)
    found = after(state, eligibility(KEPT), of=topic("Isr", flush="Always"))
    assert shown(found) == "leader 0@11 epoch 7 isr [0@11] eligible [] pe 10"
    found = after(state, eligibility(LOST), of=topic("Isr", flush="Always"))
    assert shown(found) == "leader -1@-1 epoch 6 isr [] eligible [] pe 10"


def test_a_member_that_its_leader_has_not_heard_yet_is_judged_by_its_disk() -> None:
    """Epoch -1 in a proposal: the stored entry counts, if it is valid."""
    state = partition("0@1 1@2", leader="1@2")

    def answer(*brokers: Any) -> ErrorCode:
        requested = proposal("0@-1 1@2")
        return checked_proposal(
            ALWAYS, state, eligibility(*brokers), sender=BrokerId(1), proposal=requested
        ).error

    assert answer(KEPT, "1@2") is ErrorCode.NONE
    assert answer(LOST, "1@2") is ErrorCode.INELIGIBLE_REPLICA
