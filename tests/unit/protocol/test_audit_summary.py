"""The summary fits a termination message, whatever the audit found."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark_protocol.audit_summary import (
    MAX_SUMMARY_BYTES,
    MalformedSummary,
    decode_summary,
    encode_summary,
)

from tests.support.audit_objects import incident, summary


def test_what_is_short_is_told_whole() -> None:
    assert decode_summary(encode_summary(summary())) == summary()


@settings(max_examples=25)
@given(count=st.integers(0, 60), text=st.text(min_size=1, max_size=300))
def test_much_is_cut_to_fit_and_what_is_left_out_is_counted(count: int, text: str) -> None:
    incidents = tuple(incident(number, sentence=text, subject=text) for number in range(count))
    document = encode_summary(summary(incidents=incidents, sentence=text * 9))
    assert len(document) <= MAX_SUMMARY_BYTES
    reported = decode_summary(document)
    assert len(reported.incidents) + reported.left_out == count
    assert [each.id for each in reported.incidents] == [
        each.id for each in incidents[: len(reported.incidents)]
    ]


@pytest.mark.parametrize("document", [b"", b"Traceback (most recent call last)", b"{}", b"[1]"])
def test_other_last_words_are_no_summary(document: bytes) -> None:
    with pytest.raises(MalformedSummary, match="expected the JSON of an audit's summary, found"):
        decode_summary(document)
