"""Digests at boundaries: equal on equal replicas whatever they lived through, else not."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark_broker.replication.core.replica_digest import (
    IDLE_TURN_MS,
    SHOWN_FOR_MS,
    ReplicaDigest,
    range_start,
)
from tidemark_protocol.ids import Offset

# Ends of the batches of a log that begins at 0, rising.
LOGS = st.lists(st.integers(1, 40), min_size=1, max_size=60).map(
    lambda sizes: [sum(sizes[: index + 1]) for index in range(len(sizes))]
)


def count(digest: ReplicaDigest, ends: list[int], *, now_ms: int = 0, salt: str = "") -> None:
    for end in ends:
        if end > digest.end:
            digest.add(f"{digest.end} to {end}{salt}".encode(), Offset(end), now_ms)


def all_shown(digest: ReplicaDigest, after_ms: int = SHOWN_FOR_MS) -> dict[int, int]:
    """What an idle replica shows in the course of time."""
    turns = range(64 * 3)
    shown = [digest.shown(after_ms + turn * IDLE_TURN_MS) for turn in turns]
    return {each.boundary: each.digest for each in shown if each is not None}


@given(LOGS)
def test_an_idle_replica_shows_all_of_its_log_piece_by_piece(ends: list[int]) -> None:
    digest = ReplicaDigest(Offset(0))
    count(digest, ends)
    boundaries = sorted(all_shown(digest))
    assert boundaries[-1] == ends[-1]
    assert [range_start(boundary) for boundary in boundaries] == [0, *boundaries[:-1]]


@given(LOGS, st.data())
def test_whoever_begins_late_agrees_at_every_boundary_that_it_shows(
    ends: list[int], data: st.DataObject
) -> None:
    start = data.draw(st.sampled_from([0, *ends]))
    whole, late = ReplicaDigest(Offset(0)), ReplicaDigest(Offset(start))
    for end in ends:
        count(whole, [end])
        count(late, [end])
        known = all_shown(whole)
        assert all(known[boundary] == digest for boundary, digest in all_shown(late).items())


def test_whoever_began_late_shows_boundaries_again_soon() -> None:
    late = ReplicaDigest(Offset(1000))
    count(late, list(range(1001, 1100)))
    assert sorted(all_shown(late)) == [1088, 1096, 1098, 1099]


@given(LOGS, st.data())
def test_a_log_that_was_cut_and_written_again_agrees_with_one_that_was_not(
    ends: list[int], data: st.DataObject
) -> None:
    cut = data.draw(st.sampled_from(ends))
    never_truncated, was_truncated = ReplicaDigest(Offset(0)), ReplicaDigest(Offset(0))
    count(was_truncated, [end for end in ends if end <= cut])
    count(was_truncated, [end for end in ends if end > cut], salt=" of another epoch")
    was_truncated.truncate(Offset(cut))
    count(was_truncated, ends)
    count(never_truncated, ends)
    known = all_shown(never_truncated)
    assert all(known[boundary] == digest for boundary, digest in all_shown(was_truncated).items())


@given(LOGS, st.data())
def test_one_other_batch_changes_the_boundary_whose_range_holds_it(
    ends: list[int], data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(ends) - 1))
    ours, theirs = ReplicaDigest(Offset(0)), ReplicaDigest(Offset(0))
    count(ours, ends)
    count(theirs, ends[:number])
    count(theirs, [ends[number]], salt=" with another byte")
    count(theirs, ends)
    first, second = all_shown(ours), all_shown(theirs)
    begins_at = ([0, *ends])[number]
    differing = [boundary for boundary in first if first[boundary] != second[boundary]]
    assert differing == [b for b in first if range_start(b) <= begins_at < b]


@given(LOGS, st.data())
def test_a_restart_goes_on_where_it_stopped(ends: list[int], data: st.DataObject) -> None:
    stopped = data.draw(st.integers(0, len(ends)))
    straight, stopping = ReplicaDigest(Offset(0)), ReplicaDigest(Offset(0))
    count(straight, ends)
    count(stopping, ends[:stopped])
    log_end = Offset(ends[-1])
    resumed = ReplicaDigest.restored(stopping.positions, log_end)
    count(resumed, ends)
    assert all_shown(resumed) == all_shown(straight)


@given(LOGS, st.data())
def test_a_restart_over_a_shorter_log_shows_nothing_that_is_not_there(
    ends: list[int], data: st.DataObject
) -> None:
    left = data.draw(st.sampled_from([0, *ends]))
    digest = ReplicaDigest(Offset(0))
    count(digest, ends)
    resumed = ReplicaDigest.restored(digest.positions, Offset(left))
    assert resumed.end == left
    assert all(boundary <= left for boundary in all_shown(resumed))


@pytest.mark.parametrize(
    "positions", [(), ((4, 0), (4, 1)), ((8, 0), (4, 1)), ((-1, 0),), ((0, 1 << 48),)]
)
def test_positions_that_no_digest_could_have_are_refused(
    positions: tuple[tuple[int, int], ...],
) -> None:
    with pytest.raises(ValueError, match="expected"):
        ReplicaDigest.restored(positions, Offset(100))


def test_the_roundest_boundary_of_the_last_two_minutes_is_shown_while_records_flow() -> None:
    digest = ReplicaDigest(Offset(0))
    shown = []
    for second in range(600):
        count(digest, [10 * second + 10], now_ms=1000 * second)
        found = digest.shown(1000 * second)
        assert found is not None
        shown.append(found.boundary)
    # 10 records a second: 1,200 in two minutes, so at least every 2,048th boundary is met.
    assert sorted(set(shown[120:])) == [1024, 2048, 3072, 4096, 5120]
    stays = [shown[120:].count(boundary) for boundary in (2048, 4096)]
    assert all(seconds > 100 for seconds in stays)


def test_ranges_of_what_is_shown_while_records_flow_leave_nothing_out() -> None:
    digest = ReplicaDigest(Offset(0))
    shown: dict[int, None] = {}
    for step in range(20_000):
        count(digest, [7 * step + 7], now_ms=97 * step)
        found = digest.shown(97 * step)
        assert found is not None
        shown[found.boundary] = None
    boundaries = list(shown)
    assert boundaries == sorted(boundaries)
    assert all(range_start(after) <= before for before, after in pairwise(boundaries))


def test_nothing_counted_shows_nothing() -> None:
    assert ReplicaDigest(Offset(17)).shown(0) is None


def test_a_digest_is_a_number_that_a_float_holds() -> None:
    digest = ReplicaDigest(Offset(0))
    count(digest, list(range(1, 500)))
    assert all(0 <= each < 2**48 for each in all_shown(digest).values())
    assert len(digest.positions) <= 64
