"""Several scrapes of one thing become one series.

A broker's pod comes back under another address: Prometheus has a second series for one thing.
"""

from pathlib import Path

import numpy as np
import pytest
from tidemark_audit.analysis.series import added, fold_scrapes
from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult, LossKind, Outcome
from tidemark_audit.sources.detect import sources_at

from tests.support.audit_exports import Export, Value, brokers, partition
from tests.support.audit_series import CAP_MS, Samples, at_each_second, gone, merged

LENGTH_MS = 1_800_000
STEP_MS = 15_000
ORDERS = {"topic": "orders", "topic_id": "id-orders", "partition": "0"}
MOVED_MS = 1_200_000


def reported_from_two_addresses(name: str, value: Value, follower: str = "") -> Export:
    """All brokers; the new addresses answer two scrapes before the old ones' series end."""
    whole = Export(length_ms=LENGTH_MS, step_ms=STEP_MS)
    brokers(whole)
    more = {"follower": follower} if follower else {}
    for address, begin_ms, end_ms in (
        ("old:8080", 0, MOVED_MS), ("new:8080", MOVED_MS - 2 * STEP_MS, LENGTH_MS)
    ):  # fmt: skip
        part = Export(length_ms=LENGTH_MS, step_ms=STEP_MS)
        partition(part, scrape={"instance": address}, without=frozenset({name}))
        part.add(name, value, **ORDERS, broker="1", instance=address, **more)
        for key, samples in part.series.items():
            samples[:] = [each for each in samples if begin_ms <= each[0] < end_ms]
            if end_ms == MOVED_MS and samples:
                samples.append((MOVED_MS, float("nan")))
            whole.series.setdefault(key, []).extend(samples)
    return whole


def checked_proposal(export: Export, path: Path) -> AuditResult:
    return audit(LocalEngine(), sources_at([str(export.write(path / "export.jsonl"))]))


def test_a_watermark_that_goes_back_under_the_new_address_is_a_loss(tmp_path: Path) -> None:
    """The first samples of the new address lie where the old one still stands."""
    export = reported_from_two_addresses(
        "replica_high_watermark_offset",
        lambda t: 1000 if t < 1_300_000 else 2000 if t < 1_500_000 else 1400,
    )
    result = checked_proposal(export, tmp_path)
    assert [(each.kind, each.records) for each in result.loss_evidence] == [
        (LossKind.HIGH_WATERMARK_REGRESS, 600)
    ]


def test_lag_that_only_the_new_address_shows_is_lag(tmp_path: Path) -> None:
    export = reported_from_two_addresses(
        "follower_caught_up_age_seconds",
        lambda t: 0.1 if t < 1_300_000 else 9.0,
        follower="2",
    )
    result = checked_proposal(export, tmp_path)
    assert {each.rule: each.outcome for each in result.rules}["R4"] is Outcome.VIOLATED


def folded(family: str, *scrapes: Samples) -> list[tuple[int, int, float]]:
    """Fold the scrapes of one series of broker 1; return its runs."""
    several = [
        merged(family, samples, broker="1", scrape=f"job-{number}")
        for number, samples in enumerate(scrapes)
    ]
    (whole,) = fold_scrapes(several, CAP_MS)
    assert whole.key.scrape == ""
    runs = zip(whole.first_ms, whole.last_ms, whole.first_value, strict=True)
    return [(int(first), int(last), float(value)) for first, last, value in runs]


def test_a_single_scrape_stays_as_it_is() -> None:
    assert folded("replica_is_leader", at_each_second(1, 1, 0)) == [
        (0, 1000, 1.0),
        (2000, 2000, 0.0),
    ]
    assert fold_scrapes([], CAP_MS) == []


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_fuller_scrape_counts_and_the_other_fills_its_gaps(order: tuple[int, int]) -> None:
    fuller = [*at_each_second(1, 1, 1, 1), *at_each_second(1, 1, since_s=20)]
    other = at_each_second(0, 0, since_s=10)
    inside = at_each_second(0, 0, since_s=2)
    both = (fuller, sorted([*inside, *other]))
    assert folded("replica_is_leader", *(both[number] for number in order)) == [
        (0, 3000, 1.0),
        (10_000, 11_000, 0.0),
        (20_000, 21_000, 1.0),
    ]


def test_a_run_that_reaches_into_what_is_known_is_cut_there() -> None:
    fuller = at_each_second(*[1] * 10)
    other = at_each_second(*[0] * 8, since_s=8)  # valid after 9 s + 2.5 s
    assert folded("replica_is_leader", fuller, other) == [
        (0, 9000, 1.0),
        (9000 + CAP_MS, 15_000, 0.0),
    ]


def test_of_a_rising_run_that_is_cut_only_the_end_that_is_known_is_kept() -> None:
    family = "replica_high_watermark_offset"
    fuller = at_each_second(*range(10))
    other = at_each_second(*range(100, 108), since_s=8)
    assert folded(family, fuller, other) == [(0, 9000, 0.0), (15_000, 15_000, 107.0)]


def test_of_a_rising_run_that_ends_in_what_is_known_only_the_first_value_is_kept() -> None:
    family = "replica_high_watermark_offset"
    fuller = at_each_second(*range(10), since_s=20)
    other = at_each_second(*range(100, 108), since_s=15)
    assert folded(family, fuller, other) == [(15_000, 15_000, 100.0), (20_000, 29_000, 0.0)]


def test_the_end_of_a_series_leaves_room_for_another_scrape() -> None:
    ended = at_each_second(1, 1, 1, gone())
    assert folded("replica_is_leader", ended, at_each_second(0, since_s=3))[-1] == (3000, 3000, 0.0)


def test_two_brokers_are_two_targets() -> None:
    both = [
        merged("replica_is_leader", at_each_second(1), broker=broker, scrape="job")
        for broker in ("1", "2")
    ]
    assert sorted(each.key.broker for each in fold_scrapes(both, CAP_MS)) == ["1", "2"]


def test_histograms_add_up_by_bin() -> None:
    one, other = np.array([1, 4], dtype=np.int32), np.array([2, 4], dtype=np.int32)
    bins, counts = added(one, np.array([10, 20]), other, np.array([1, 2]))
    assert (bins.tolist(), counts.tolist()) == ([1, 2, 4], [10, 1, 22])
    nothing = np.empty(0, dtype=np.int32)
    assert added(nothing, np.empty(0, dtype=np.int64), one, np.array([1, 1]))[0].tolist() == [1, 4]
