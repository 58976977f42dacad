"""What loads on a real cluster are judged by: nothing that `tidemark verify` says is overlooked."""

from dataclasses import fields, replace
from typing import Any

import msgspec
import pytest
from tidemark_chaos.history_checker import Anomaly
from tidemark_chaos.verification import ReplicaComparison, Verdict, VerifyReport
from tidemark_client.outcomes import ReplicaDigest

from tests.support.clean_verdict import clean_verdict

CLEAN = Verdict(
    acknowledged=200,
    found=200,
    lost=0,
    duplicated=0,
    unknown=7,
    unknown_found=3,
    refused_found=0,
    misplaced=0,
    read_otherwise=0,
    complaints=(),
    examples=(),
)


def digest(broker_id: int, sha256: str = "same") -> ReplicaDigest:
    return ReplicaDigest(broker_id, "follower", 0, 203, 203, 4, 203, sha256)


ALIKE = ReplicaComparison(0, 203, (digest(0), digest(1), digest(2)), ())
REPORT = VerifyReport("orders", "run", CLEAN, (ALIKE,), 812.5, 3.0, 40.0, worst_read_lag_ms=900.0)


def checked_proposal(report: VerifyReport, *, code: int = 0) -> VerifyReport:
    return clean_verdict(code, msgspec.json.encode(report).decode(), "")


def test_records_of_unknown_outcome_and_long_gaps_are_no_flaw() -> None:
    assert checked_proposal(REPORT) == REPORT


@pytest.mark.parametrize(
    "change",
    [
        {"lost": 1, "found": 199},
        {"found": 199},
        {"duplicated": 1},
        {"refused_found": 1},
        {"misplaced": 1},
        {"read_otherwise": 1},
        {"complaints": ("expected offsets from 3 on, found [5]",)},
        {"examples": ("lost: record 3",)},
        {"acknowledged": 100, "found": 100},
    ],
    ids=lambda change: ", ".join(change),
)
def test_every_count_of_the_verdict_is_a_flaw_whatever_the_exit_code(
    change: dict[str, Any],
) -> None:
    with pytest.raises(AssertionError):
        checked_proposal(replace(REPORT, verdict=replace(CLEAN, **change)))


def test_no_field_of_the_verdict_is_new_to_the_test_above() -> None:
    left_alone = {"unknown", "unknown_found"}
    checked_fields = {"acknowledged", "found", "lost", "duplicated", "refused_found", "misplaced"}
    checked_fields |= {"read_otherwise", "complaints", "examples"}
    assert {field.name for field in fields(Verdict)} == checked_fields | left_alone


@pytest.mark.parametrize("name", ["poll-skip", "vanished", "duplicate-without-idempotence"])
def test_an_anomaly_of_the_history_is_a_flaw_also_where_the_demo_only_reports_it(name: str) -> None:
    with pytest.raises(AssertionError, match=name):
        checked_proposal(replace(REPORT, anomalies=(Anomaly(name, 2, ("0: 3 to 9",)),)))


@pytest.mark.parametrize(
    "comparisons",
    [
        (),
        (replace(ALIKE, digests=(digest(0), digest(1, "other"))),),
        (ALIKE, replace(ALIKE, partition=1, missing=("broker 2: no answer",))),
        (replace(ALIKE, digests=(digest(0),)),),
    ],
    ids=["none compared", "other bytes", "one is missing", "one alone"],
)
def test_replicas_that_differ_or_were_not_compared_are_a_flaw(
    comparisons: tuple[ReplicaComparison, ...],
) -> None:
    with pytest.raises(AssertionError):
        checked_proposal(replace(REPORT, replicas=comparisons))


def test_an_exit_code_alone_is_a_flaw() -> None:
    with pytest.raises(AssertionError, match="exit code 1"):
        checked_proposal(REPORT, code=1)


def test_a_verification_that_could_not_be_done_is_no_clean_verdict() -> None:
    with pytest.raises(AssertionError, match="no verdict, exit code 1"):
        clean_verdict(1, '{"error":{"expected":"all records of orders within 60 s"}}', "")
