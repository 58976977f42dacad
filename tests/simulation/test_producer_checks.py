"""The judges of refused sequences, on logs of a few headers."""

from types import SimpleNamespace
from typing import Any

import pytest
from tidemark_broker.kafka_wire.records.record_batch import BatchHeader, read_header

from tests.simulation.checks.committed_log import CommittedLog
from tests.simulation.checks.producer_checks import check_is_no_duplicate
from tests.simulation.checks.violations import Violation
from tests.support.log_fixtures import produced_batch


def header_of(sequence: int) -> BatchHeader:
    return read_header(bytes(produced_batch(sequence).data))


def an_audit(*sequences: int) -> Any:
    headers = [header_of(sequence) for sequence in sequences]
    return SimpleNamespace(
        who="orders-0 on 1",
        committed=CommittedLog("orders-0"),
        written_by=lambda producer_id: reversed(headers),
    )


def test_none_of_the_last_batches_is_refused_as_a_gap() -> None:
    for sequence in (0, 3):
        with pytest.raises(Violation, match=f"I8.*refused sequence {sequence} of producer 7"):
            check_is_no_duplicate(an_audit(0, 1, 2, 3), header_of(sequence))
    assert check_is_no_duplicate(an_audit(0, 1, 2, 3), header_of(5)) == "out of order"
    assert check_is_no_duplicate(an_audit(0, 1, 2, 3, 4, 5), header_of(0)) == "out of order"


def test_what_lies_before_a_batch_that_was_sent_again_late_is_known_no_more() -> None:
    """Its producer had expired, and sends all again whose outcomes it waits for: the first one is
    in, the second one late, the third one a gap."""
    audit = an_audit(0, 1, 2, 0)
    assert check_is_no_duplicate(audit, header_of(2)) == "out of order"
    with pytest.raises(Violation, match="refused sequence 0"):
        check_is_no_duplicate(audit, header_of(0))
