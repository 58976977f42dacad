"""Which registrations are accepted, in which epoch, and which replicas they lose (S2, S5, S9)."""

from dataclasses import replace
from typing import Any

import pytest
from tidemark_operator.api.broker import IDS_PER_ROUND, BrokerRecord
from tidemark_operator.controller.core.registration import (
    Accepted,
    RegistrationError,
    decided,
    found_replicas,
    is_of_before,
    lost_replicas,
    report_of,
)
from tidemark_protocol.controller_messages import RegisterRequest, StorageIdentity
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch

from tests.support.broker_records import NOWHERE, POOL, a_record, storage_of
from tests.support.controller_values import REPLICA, TOPIC_ID, partition, report

BROKER = BrokerId(1)
STORED = replace(a_record(BROKER), broker_epoch=BrokerEpoch(7))
REQUEST = RegisterRequest(
    POOL,
    BROKER,
    cluster_id="c",
    incarnation="second",
    endpoints=NOWHERE,
    rack="",
    storage=storage_of(BROKER),
    clean_stop_epoch=BrokerEpoch(7),
    highest_controller_epoch=ControllerEpoch(1),
    highest_broker_epoch=BrokerEpoch(7),
    highest_producer_id=-1,
)


def outcome(
    stored: BrokerRecord | None = STORED,
    *,
    highest_epoch: int = 7,
    replaced: tuple[str, ...] = (),
    lost_round: int = -1,
    **changes: Any,
) -> Accepted | RegistrationError:
    return decided(
        replace(REQUEST, **changes),
        stored=stored,
        highest_epoch=BrokerEpoch(highest_epoch),
        cluster_id="c",
        controller_epoch=ControllerEpoch(3),
        replaced=replaced,
        lost_round=lost_round,
    )


def accepted(stored: BrokerRecord | None = STORED, **changes: Any) -> Accepted:
    found = outcome(stored, **changes)
    assert isinstance(found, Accepted), found
    return found


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"cluster_id": "d"}, ErrorCode.INCONSISTENT_CLUSTER_ID, "belongs to cluster d"),
        ({"broker_id": BrokerId(-1)}, ErrorCode.INVALID_REGISTRATION, "expected 0 to 999"),
        ({"broker_id": BrokerId(1000)}, ErrorCode.INVALID_REGISTRATION, "found 1000"),
        ({"incarnation": ""}, ErrorCode.INVALID_REGISTRATION, "found none"),
        ({"rack": "r" * 254}, ErrorCode.INVALID_REGISTRATION, "rack: expected at most 253"),
        (
            {"storage": StorageIdentity("d", boot_id="b" * 65)},
            ErrorCode.INVALID_REGISTRATION,
            "storage.boot_id: expected at most 64",
        ),
        ({"replaced": ("second",)}, ErrorCode.STALE_BROKER_EPOCH, "a later process"),
    ],
)
def test_invalid_requests_are_errors_that_name_the_field(
    changes: dict[str, Any], error: ErrorCode, message: str
) -> None:
    found = outcome(**changes)
    assert isinstance(found, RegistrationError)
    assert found.error is error
    assert message in found.message


def test_an_empty_volume_and_texts_at_their_limits_are_accepted() -> None:
    found = accepted(cluster_id="", rack="r" * 253, broker_id=BrokerId(999), stored=None)
    assert (found.record.cluster_id, found.is_clean) == ("c", False)


@pytest.mark.parametrize(
    ("highest_epoch", "on_disk", "epoch"), [(7, 7, 8), (11, 7, 12), (7, 20, 21), (-1, -1, 1)]
)
def test_the_new_epoch_is_above_those_of_the_pool_and_of_the_disk(
    highest_epoch: int, on_disk: int, epoch: int
) -> None:
    found = accepted(highest_epoch=highest_epoch, highest_broker_epoch=BrokerEpoch(on_disk))
    assert found.record.broker_epoch == epoch
    assert (found.record.controller_epoch, found.is_same_epoch) == (3, False)


def test_the_same_process_gets_its_epoch_again() -> None:
    found = accepted(incarnation=STORED.incarnation, highest_epoch=11)
    assert (found.record, found.is_same_epoch, found.is_clean) == (STORED, True, True)
    unclean = replace(STORED, clean_since=STORED.broker_epoch)
    assert not accepted(unclean, incarnation=STORED.incarnation).is_clean


@pytest.mark.parametrize(
    ("stored", "on_disk", "lost", "expected"),
    [(4, -1, -1, 4), (4, 5 * IDS_PER_ROUND, -1, 5), (4, 0, 6, 6), (-1, -1, -1, -1)],
)
def test_a_producer_id_round_is_never_lowered(
    stored: int, on_disk: int, lost: int, expected: int
) -> None:
    found = accepted(
        replace(STORED, producer_id_round=stored), highest_producer_id=on_disk, lost_round=lost
    )
    assert found.record.producer_id_round == expected


@pytest.mark.parametrize(
    ("changes", "is_older"),
    [
        ({"highest_broker_epoch": BrokerEpoch(6)}, True),
        ({}, False),
        ({"highest_broker_epoch": BrokerEpoch(6), "incarnation": STORED.incarnation}, False),
        ({"highest_broker_epoch": BrokerEpoch(6), "storage": StorageIdentity("other")}, False),
    ],
)
def test_a_process_is_of_before_if_its_volume_lacks_the_stored_epoch(
    changes: dict[str, Any], is_older: bool
) -> None:
    assert is_of_before(replace(REQUEST, **changes), STORED) is is_older


def test_assigned_replicas_are_lost_if_missing_failed_or_below_their_checkpoint() -> None:
    states = tuple(
        replace(partition("", replicas=replicas), partition=number)
        for number, replicas in enumerate([(0, 1), (1, 2), (1,), (1,), (0, 2)])
    )
    reported = (
        report(5, 70, high_watermark=70),
        replace(report(5, 69, high_watermark=70), partition=1),
        replace(report(5, 70, failed=True), partition=2),
    )
    request = replace(REQUEST, replicas=reported)
    lost = lost_replicas(report_of(request), [(TOPIC_ID, states)], request)
    assert lost == {(TOPIC_ID, 1), (TOPIC_ID, 2), (TOPIC_ID, 3)}
    assert found_replicas(report_of(request)) == {REPLICA}
