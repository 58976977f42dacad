"""The log of rejections: one line for each sender and reason, without tokens, at a bounded rate."""

import logging

import pytest
from tidemark_operator.security import rejections
from tidemark_operator.security.rejections import Reason, RejectionLog, SenderRejected
from tidemark_protocol.audit_line import MAX_NAME


def rejected(
    reason: Reason = Reason.OTHER_BROKER, sender: str = "shop/default-1"
) -> SenderRejected:
    return SenderRejected(reason, "a broker speaks for itself only", sender=sender)


def test_a_line_says_who_was_rejected_where_and_why(caplog: pytest.LogCaptureFixture) -> None:
    RejectionLog(lambda: 0.0).record("POST", "/v1/register", "10.0.0.1", rejected())
    (line,) = caplog.records
    assert (line.levelno, line.message) == (logging.WARNING, "request rejected")
    wanted = {
        "audit": "rejected",
        "verb": "POST",
        "resource": "/v1/register",
        "address": "10.0.0.1",
        "principal": "shop/default-1",
        "reason": "OtherBroker",
        "status": 403,
        "detail": "a broker speaks for itself only",
        "suppressed": 0,
    }
    assert vars(line).items() >= wanted.items()


def test_repetitions_are_counted_and_other_senders_have_lines_of_their_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = 0.0
    audit = RejectionLog(lambda: now_s)
    for _ in range(1000):
        audit.record("POST", "/v1/register", "10.0.0.1", rejected())
    audit.record("POST", "/v1/register", "10.0.0.2", rejected())
    audit.record("POST", "/v1/register", "10.0.0.1", rejected(Reason.NOT_A_BROKER))
    assert len(caplog.records) == 3
    now_s = rejections.INTERVAL_SECONDS
    audit.record("POST", "/v1/register", "10.0.0.1", rejected())
    assert vars(caplog.records[-1])["suppressed"] == 999


def test_what_is_kept_and_logged_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    audit = RejectionLog(lambda: 0.0)
    for number in range(rejections.MAX_SENDERS + 1):
        audit.record("GET", "/" + "x" * 5000, str(number), rejected(sender="y" * 5000))
    assert max(len(vars(line)["resource"]) for line in caplog.records) == MAX_NAME
    audit.record("GET", "/", "1", rejected(sender="y" * 5000))
    assert len(caplog.records) == rejections.MAX_SENDERS + 1
    audit.record("GET", "/", "0", rejected(sender="y" * 5000))  # long forgotten
    assert len(caplog.records) == rejections.MAX_SENDERS + 2
