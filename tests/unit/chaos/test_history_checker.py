"""Every anomaly of the history checker: found where it is, not found where it is not."""

from dataclasses import replace

import pytest
from tidemark_chaos.history_checker import (
    Kind,
    Operation,
    Outcome,
    SuspendedGuarantee,
    Verdict,
    check,
)

OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO


def send(
    value: int,
    offset: int | None,
    at_us: int = 0,
    *,
    process: str = "p",
    outcome: Outcome = OK,
    acks: int = -1,
    is_idempotent: bool = False,
    took_us: int = 1,
) -> Operation:
    return Operation(
        process=process,
        kind=Kind.SEND,
        outcome=outcome,
        partition="orders-0",
        values=(value,),
        offsets=() if offset is None else (offset,),
        invoked_us=at_us,
        completed_us=at_us + took_us,
        acks=acks,
        is_idempotent=is_idempotent,
    )


def poll(
    shown: dict[int, int] | list[tuple[int, int]],
    at_us: int = 1000,
    *,
    process: str = "c",
    is_reset: bool = False,
    is_final: bool = False,
    log_start_offset: int = 0,
    high_watermark: int = -1,
) -> Operation:
    """`shown`: (offset, value) as the answer had them."""
    pairs = list(shown.items()) if isinstance(shown, dict) else shown
    return Operation(
        process=process,
        kind=Kind.POLL,
        outcome=OK,
        partition="orders-0",
        values=tuple(value for _, value in pairs),
        offsets=tuple(offset for offset, _ in pairs),
        invoked_us=at_us,
        completed_us=at_us + 1,
        is_reset=is_reset,
        is_final=is_final,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
    )


def names(verdict: Verdict) -> list[str]:
    return [entry.name for entry in verdict.anomalies]


def sent(*values: int) -> list[Operation]:
    """Value n acknowledged at offset n, one after the other."""
    return [send(value, value, at_us=10 * value) for value in values]


def test_a_history_as_it_should_be_is_clean() -> None:
    verdict = check([*sent(0, 1, 2), poll({0: 0, 1: 1}), poll({2: 2}, 1100)])
    assert verdict.anomalies == ()
    assert verdict.is_clean
    assert verdict.operations == {"poll ok": 2, "send ok": 3}
    assert verdict.longest_send_gap_us == 10


def test_two_values_at_one_offset() -> None:
    verdict = check([*sent(0, 1), poll({0: 0, 1: 1}), send(5, None, outcome=INFO), poll({1: 5})])
    assert verdict.count("inconsistent-offsets") == 1
    assert "offset 1 holds each of [1, 5]" in verdict.anomalies[0].samples[0]


def test_an_acknowledged_offset_that_shows_something_else() -> None:
    assert "inconsistent-offsets" in names(
        check([send(0, 0), send(1, None, outcome=INFO), poll({0: 1})])
    )


def test_acks_1_says_only_where_the_record_once_was() -> None:
    verdict = check([send(0, 0, acks=1), send(1, 0, 50), poll({0: 1})])
    assert names(verdict) == ["lost-unpromised"]
    assert verdict.is_clean


def test_a_value_twice_breaks_idempotence_only() -> None:
    twice = poll({0: 0, 1: 0})
    assert names(check([send(0, 0, is_idempotent=True), twice])) == ["duplicate"]
    verdict = check([send(0, 0), twice])
    assert names(verdict) == ["duplicate-without-idempotence"]
    assert verdict.is_clean


def test_a_value_read_elsewhere_than_it_was_acknowledged_is_twice_there() -> None:
    assert names(check([send(0, 0, is_idempotent=True), poll({3: 0})])) == ["duplicate"]


def test_a_write_that_readers_went_past_is_lost() -> None:
    verdict = check([*sent(0, 1, 2), poll({0: 0}), poll({2: 2}, process="d")])
    assert names(verdict) == ["lost-write"]
    assert verdict.anomalies[0].samples == ("orders-0: 1, acknowledged at offset 1 to p",)


def test_a_write_that_nobody_reached_is_unseen_and_not_lost() -> None:
    assert names(check([*sent(0, 1), poll({0: 0})])) == ["unseen"]


def test_a_write_that_the_read_of_the_whole_log_lacks_is_lost_also_at_the_end() -> None:
    assert names(check([*sent(0, 1), poll({0: 0}, is_reset=True, is_final=True)])) == ["lost-write"]


def test_what_retention_or_compaction_took_is_not_lost() -> None:
    operations = [*sent(0, 1, 2), poll({2: 2}, log_start_offset=2, is_final=True)]
    assert check(operations).anomalies == ()
    operations = [*sent(0, 1, 2), poll({2: 2}, is_final=True)]
    assert check(operations, {"orders-0": SuspendedGuarantee(is_compacted=True)}).anomalies == ()


def test_a_read_record_that_is_gone_at_the_end() -> None:
    operations = [*sent(0, 1), poll({0: 0, 1: 1})]
    gone = poll({0: 0}, 2000, process="reader", is_final=True)
    assert names(check([*operations, gone])) == ["vanished"]
    taken = replace(gone, log_start_offset=2)
    assert check([*operations, taken]).anomalies == ()


def test_a_refused_write_must_not_be_read() -> None:
    assert names(check([send(0, None, outcome=FAIL), poll({0: 0})])) == ["refused-read"]


def test_an_unknown_outcome_may_be_read_or_not() -> None:
    unknown = send(7, None, outcome=INFO)
    assert check([unknown, poll({0: 7})]).anomalies == ()
    assert check([unknown, *sent(0), poll({0: 0}, is_final=True)]).anomalies == ()


def test_a_value_that_nobody_sent() -> None:
    assert names(check([poll({0: 9})])) == ["unknown-value"]


def test_a_read_at_or_above_the_watermark() -> None:
    assert names(check([*sent(0, 1), poll({0: 0, 1: 1}, high_watermark=1)])) == [
        "read-above-watermark"
    ]
    assert check([*sent(0, 1), poll({0: 0, 1: 1}, high_watermark=2)]).anomalies == ()


LATE = poll({1: 1}, process="d")


@pytest.mark.parametrize(
    ("polls", "found"),
    [
        ([poll({0: 0, 2: 2}), poll({1: 1}, process="d")], ["int-poll-skip"]),
        ([poll([(1, 1), (0, 0), (2, 2)])], ["int-nonmonotonic-poll", "int-poll-skip"]),
        ([poll({0: 0}), poll({2: 2}), poll({1: 1}, process="d")], ["poll-skip"]),
        ([poll({0: 0, 1: 1}), poll({1: 1, 2: 2})], ["nonmonotonic-poll"]),
        ([poll({0: 0, 1: 1}), poll({0: 0, 1: 1, 2: 2}, is_reset=True)], []),
        ([poll({0: 0}), poll({2: 2}, is_reset=True), poll({1: 1}, process="d")], []),
        ([poll({0: 0}), poll({2: 2}, log_start_offset=2), poll({1: 1}, process="d")], []),
        ([poll({0: 0}), poll({}), poll({1: 1, 2: 2})], []),
        # It was told that the log starts at 2, read nothing there; the next leader's starts at 0.
        ([poll({0: 0}), poll({}, log_start_offset=2), poll({2: 2}), LATE], []),
        ([poll({0: 0}), poll({}, log_start_offset=1), poll({2: 2}), LATE], ["poll-skip"]),
    ],
)
def test_polls_follow_each_other(polls: list[Operation], found: list[str]) -> None:
    assert names(check([*sent(0, 1, 2), *polls])) == found


def test_sends_of_one_request_rise() -> None:
    both = replace(send(0, None), values=(0, 1), offsets=(1, 0))
    assert "int-nonmonotonic-send" in names(check([both, poll({0: 1, 1: 0})]))


def test_sends_of_one_process_keep_their_order() -> None:
    operations = [send(0, 1, 0), send(1, 0, 10), poll({0: 1, 1: 0})]
    assert names(check(operations)) == ["acknowledged-below", "nonmonotonic-send"]


def test_overlapping_sends_are_ordered_only_with_idempotence() -> None:
    def pipelined(*, is_idempotent: bool) -> list[Operation]:
        return [
            send(0, 1, 0, took_us=50, is_idempotent=is_idempotent),
            send(1, 0, 10, took_us=60, is_idempotent=is_idempotent),
            poll({0: 1, 1: 0}),
        ]

    assert names(check(pipelined(is_idempotent=True))) == ["nonmonotonic-send"]
    assert check(pipelined(is_idempotent=False)).anomalies == ()


def test_an_acknowledged_offset_is_above_all_that_were_acknowledged_before_it_began() -> None:
    first = send(0, 1, 0)
    rest = [send(2, None, outcome=INFO), poll({0: 1, 1: 0})]
    later = send(1, 0, 10, process="q")
    assert names(check([first, later, *rest])) == ["acknowledged-below"]
    meanwhile = send(1, 0, 0, process="q", took_us=10)
    assert check([first, meanwhile, *rest]).anomalies == ()
    unpromised = send(1, 0, 10, process="q", acks=1)
    assert check([first, unpromised, *rest]).anomalies == ()


def test_an_unclean_election_suspends_promises_from_its_start_offset() -> None:
    operations = [
        *sent(0, 1, 2),
        poll({0: 0, 1: 1, 2: 2}),
        send(3, 1, 3000),
        poll({0: 0, 1: 3}, 4000, process="final", is_final=True),
    ]
    assert not check(operations).is_clean
    assert check(operations, {"orders-0": SuspendedGuarantee(from_offset=1)}).is_clean
    assert not check(operations, {"orders-0": SuspendedGuarantee(from_offset=2)}).is_clean


def test_realtime_lag_is_how_long_the_next_record_was_known() -> None:
    verdict = check([*sent(0, 1), poll({0: 0}, 1000), poll({1: 1}, 1100)])
    assert verdict.worst_realtime_lag_us == 1000 - 11


def test_the_worst_samples_are_kept() -> None:
    ends = [(value, 100 - value) for value in range(12)]
    operations = [send(value, offset, 10 * value) for value, offset in ends]
    verdict = check([*operations, poll({offset: value for value, offset in reversed(ends)})])
    below = next(entry for entry in verdict.anomalies if entry.name == "acknowledged-below")
    assert (below.count, len(below.samples)) == (11, 8)
    assert "(11,) of p at (89,), while 100" in below.samples[0]


def test_nobody_can_read_to_the_end_of_a_deleted_topic() -> None:
    operations = [*sent(0, 1), poll({0: 0})]
    assert check(operations, {"orders-0": SuspendedGuarantee(is_deleted=True)}).anomalies == ()


def test_what_comes_while_the_last_final_read_is_under_way_need_not_be_in_it() -> None:
    final = poll({0: 0}, 1000, process="final", is_final=True, high_watermark=1)
    acknowledged_late = send(1, 1, 1000)
    read_late = poll({1: 1}, 1001, is_reset=True)
    assert names(check([send(0, 0), final, acknowledged_late])) == []
    assert names(check([send(0, 0), final, acknowledged_late, read_late])) == []
    assert names(check([send(0, 0), send(1, 1), final])) == ["lost-write"]
    assert names(
        check([send(0, 0), send(1, 1), replace(read_late, invoked_us=5, completed_us=6), final])
    ) == ["vanished"]
