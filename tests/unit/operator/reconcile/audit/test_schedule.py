"""The schedule of an audit, and how long the time between two of its runs is at most."""

import pytest
from tidemark_operator.api.replication_audit import ReplicationAudit
from tidemark_operator.reconcile.audit.schedule import Schedule, period_seconds, schedule_of

from tests.support.api_objects import parsed
from tests.support.audit_objects import audit_object

CREATED = "2026-11-20T00:00:00Z"
DAY = 86_400


def test_single_and_suspended_audits_are_never_due() -> None:
    for fields in ({}, {"schedule": "0 6 * * *", "suspend": True}, {"schedule": "@every 1h"}):
        audit = parsed(ReplicationAudit, audit_object(**fields))
        assert schedule_of(audit.spec, CREATED) is None
    daily = parsed(ReplicationAudit, audit_object(schedule="0 6 * * *"))
    assert schedule_of(daily.spec, CREATED) == Schedule(CREATED, DAY)


@pytest.mark.parametrize(
    ("schedule", "days"),
    [
        ("*/5 * * * *", 1 / 24), ("* * * * *", 1 / 1440), ("17 * * * *", 1 / 24),
        ("0 */6 * * *", 1), ("0 6 * * 1", 7), ("0 6 1 * *", 31), ("0 6 1 * 1", 7),
        ("0 6 1 1 *", 366), ("@daily", 1), ("@weekly", 7),
    ],
)  # fmt: skip
def test_the_period_of_a_schedule_is_an_upper_bound(schedule: str, days: float) -> None:
    assert period_seconds(schedule) == pytest.approx(days * DAY)


@pytest.mark.parametrize("schedule", ["", "soon", "0 6 * *", "0 0 6 * * *", "@every 1h", "@"])
def test_what_is_no_schedule_of_five_fields_or_a_known_macro_has_no_period(schedule: str) -> None:
    assert period_seconds(schedule) is None


def test_a_question_mark_stands_for_every_value() -> None:
    assert period_seconds("0 6 ? * 1") == 7 * DAY
    assert period_seconds("0 6 1 * ?") == 31 * DAY
