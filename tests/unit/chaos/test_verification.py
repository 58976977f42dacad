"""The ledger, the write gap and the verdict."""

import pytest
from msgspec.structs import replace
from tidemark_chaos.history_checker import check as check_history
from tidemark_chaos.verification import check, percentile
from tidemark_chaos.workload_log import (
    FOREIGN,
    Event,
    Finished,
    Produced,
    Read,
    Stalled,
    Started,
    Violation,
    WorkloadLog,
    decode_event,
    encode_event,
    longest_stall_ms,
    longest_write_gap_ms,
    operations,
    read_workload_log,
    record_value,
    sequence_of,
    write_gap_ms,
)


def workload_log(*events: Event, partitions: int = 1) -> WorkloadLog:
    started = Started(0.0, "run", "orders", partitions, 10.0)
    return read_workload_log(encode_event(event) for event in (started, *events))


def acknowledged(sequence: int, offset: int, t_ms: float = 1.0) -> Produced:
    return Produced(t_ms, 0, sequence, "acknowledged", 1.0, offset)


def test_events_survive_their_line() -> None:
    events: list[Event] = [
        Started(1.5, "run", "orders", 3, 10.0),
        acknowledged(0, 0),
        Read(2.0, 0, 5, [1, FOREIGN]),
        Stalled(2.5, 31.0),
        Violation(3.0, 1, "a hole"),
        Finished(4.0, 1, 0, 0, 2, 1),
    ]
    assert [decode_event(encode_event(event)) for event in events] == events


def test_what_acks_1_of_a_mix_loses_is_reported_and_breaks_no_promise() -> None:
    lost = replace(acknowledged(1, 1), acks="1")
    events: list[Event] = [
        Started(0.0, "run", "orders", 1, 10.0, "mixed"),
        acknowledged(0, 0),
        lost,
    ]
    found = {0: {0: 0, 1: 2}}
    assert check(read_workload_log(map(encode_event, events)), found).is_clean
    (anomaly,) = check_history(
        operations([*events, acknowledged(2, 1)], found, at_ms=9.0)
    ).anomalies
    assert (anomaly.name, anomaly.count) == ("lost-unpromised", 1)


def test_what_a_run_with_acks_1_alone_loses_is_lost() -> None:
    events = [Started(0.0, "run", "orders", 1, 10.0, "1"), acknowledged(0, 0), acknowledged(1, 1)]
    assert check(read_workload_log(map(encode_event, events)), {0: {0: 0}}).lost == 1


def test_a_cut_last_line_is_counted_and_not_trusted() -> None:
    found = read_workload_log(
        [encode_event(Started(0, "run", "orders", 1, 10.0)), b'{"event":"prod']
    )
    assert (found.run_id, found.unreadable_lines, found.is_finished) == ("run", 1, False)


def test_values_know_their_run_and_partition() -> None:
    value = record_value("run", 2, 17)
    assert sequence_of("run", 2, value) == 17
    assert sequence_of("run", 1, value) == FOREIGN
    assert sequence_of("other", 2, value) == FOREIGN
    assert sequence_of("run", 2, None) == FOREIGN
    assert sequence_of("run", 2, b"run:2:x") == FOREIGN


def test_all_found_once_is_clean() -> None:
    verdict = check(
        workload_log(acknowledged(0, 0), acknowledged(1, 1)), {0: {0: 0, 1: 1, 2: FOREIGN}}
    )
    assert (verdict.acknowledged, verdict.found) == (2, 2)
    assert verdict.is_clean


def test_a_missing_record_is_lost() -> None:
    verdict = check(workload_log(acknowledged(0, 0), acknowledged(1, 1)), {0: {0: 0}})
    assert (verdict.found, verdict.lost, verdict.is_clean) == (1, 1, False)
    assert verdict.examples == ("lost: partition 0, record 1, acknowledged at offset 1",)


def test_a_record_found_twice_is_duplicated() -> None:
    verdict = check(workload_log(acknowledged(0, 0)), {0: {0: 0, 1: 0}})
    assert (verdict.lost, verdict.duplicated, verdict.is_clean) == (0, 1, False)


def test_a_record_at_another_offset_breaks_its_acknowledgement() -> None:
    verdict = check(workload_log(acknowledged(0, 0)), {0: {3: 0}})
    assert (verdict.lost, verdict.misplaced, verdict.is_clean) == (0, 1, False)


def test_unknown_outcomes_count_neither_way() -> None:
    unknown = [Produced(1.0, 0, sequence, "unknown", 1.0) for sequence in (0, 1)]
    verdict = check(workload_log(*unknown), {0: {0: 0, 1: 0}})
    assert (verdict.unknown, verdict.unknown_found) == (2, 1)
    assert (verdict.lost, verdict.duplicated, verdict.is_clean) == (0, 0, True)


def test_a_refused_record_that_is_there_breaks_a_promise() -> None:
    verdict = check(workload_log(Produced(1.0, 0, 0, "refused", 1.0)), {0: {0: 0}})
    assert (verdict.refused_found, verdict.is_clean) == (1, False)


def test_what_a_consumer_read_must_stay() -> None:
    verdict = check(workload_log(Read(1.0, 0, 0, [4])), {0: {0: 5}})
    assert (verdict.read_otherwise, verdict.is_clean) == (1, False)


def test_what_was_read_twice_must_be_the_same() -> None:
    found = workload_log(Read(1.0, 0, 0, [4]), Read(2.0, 0, 0, [5]))
    assert found.complaints == ["partition 0: offset 0 read as record 4 and later as 5"]


def test_the_write_gap_is_the_longest_between_two_acknowledgements() -> None:
    assert write_gap_ms([0, 10, 250, 260]) == 240


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ((0, 5), 10),
        ((100, 120), 240),  # it overlaps the window
        ((255, 256), 10),
        ((255, 1000), 740),  # silent to the window's end
    ],
)
def test_the_write_gap_of_a_window(window: tuple[float, float], expected: float) -> None:
    assert write_gap_ms([0, 10, 250, 260], window) == expected


def test_a_partition_that_never_answers_is_the_longest_gap() -> None:
    found = workload_log(acknowledged(0, 0, t_ms=10.0), acknowledged(1, 1, t_ms=20.0), partitions=2)
    assert longest_write_gap_ms(found, (5.0, 105.0)) == 100.0


def test_the_loads_own_stalls_are_told_apart() -> None:
    found = workload_log(Stalled(100.0, 60.0), Stalled(500.0, 30.0))
    assert longest_stall_ms(found, (90.0, 600.0)) == 60.0
    assert longest_stall_ms(found, (200.0, 600.0)) == 30.0
    assert longest_stall_ms(found, (600.0, 700.0)) == 0.0


def test_percentiles_are_nearest_ranks() -> None:
    values = [float(value) for value in range(1, 101)]
    assert (percentile(values, 50), percentile(values, 99), percentile([], 99)) == (50, 99, 0)
