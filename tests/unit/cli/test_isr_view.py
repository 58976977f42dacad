"""The in-sync sets of a pool as lines of a terminal."""

from typing import Any

import pytest
from tidemark_cli.isr_view import (
    NO_FIGURES,
    Disk,
    Figures,
    Health,
    Progress,
    bytes_text,
    cell_of,
    health_of,
    lines_of,
    progress_text,
    read_figures,
    rows_of,
    short,
    summary,
)
from tidemark_client.cluster_status import BrokerRow, ClusterStatus
from tidemark_client.metadata import NO_LEADER, PartitionView, TopicView


def view(number: int = 0, isr: tuple[int, ...] = (0, 1, 2), **fields: Any) -> PartitionView:
    values: dict[str, Any] = {
        "leader": isr[0] if isr else NO_LEADER,
        "leader_epoch": 5,
        "replicas": (0, 1, 2),
        "min_insync_replicas": 2,
    }
    return PartitionView(partition=number, in_sync_replicas=isr, **(values | fields))


def status(*views: PartitionView, states: tuple[str, ...] = ("Active",) * 3) -> ClusterStatus:
    brokers = tuple(BrokerRow(number, state) for number, state in enumerate(states))
    return ClusterStatus(brokers, (TopicView("orders", views),))


def text_of(
    found: ClusterStatus, width: int = 80, height: int = 40, figures: Figures = NO_FIGURES
) -> list[str]:
    return [line.plain.rstrip() for line in lines_of(found, figures, width=width, height=height)]


@pytest.mark.parametrize(
    ("partition", "health"),
    [
        (view(), Health.IN_SYNC),
        (view(isr=(0, 1)), Health.AT_MIN),
        (view(isr=(0, 1), min_insync_replicas=1), Health.UNDER),
        (view(isr=(0,)), Health.BELOW_MIN),
        (view(isr=()), Health.OFFLINE),
        (view(isr=(0, 1), replicas=(0, 1, 2), adding=(2,)), Health.MOVING),
        (view(isr=(0,), replicas=(0,), min_insync_replicas=1), Health.IN_SYNC),
    ],
)
def test_a_partition_is_as_well_as_its_isr(partition: PartitionView, health: Health) -> None:
    assert health_of(partition) is health


def test_a_replica_has_the_letter_of_its_role_or_of_its_broker() -> None:
    states = {0: "Active", 1: "Active", 2: "Fenced", 3: "Active", 4: "Draining", 5: "Gone"}
    brokers = {number: BrokerRow(number, state) for number, state in states.items()}
    partition = view(isr=(0, 1), replicas=(0, 1, 2, 3, 4, 5, 6, 8), eligible_leaders=(8,))
    letters = [cell_of(partition, number, brokers) for number in range(9)]
    assert letters == ["L", "S", "F", "C", "C", "M", "M", "·", "E"]


def test_what_is_not_well_comes_first() -> None:
    found = rows_of(status(view(0), view(1, isr=(0, 1)), view(2, isr=())).topics)
    assert [row.view.partition for row in found] == [2, 1, 0]


def test_the_summary_counts_brokers_and_partitions() -> None:
    found = status(view(0), view(1, isr=(0,)), states=("Active", "Fenced", "Active", "Gone"))
    assert summary(found, rows_of(found.topics)) == (
        "2 of 3 brokers active · 1 below min ISR, 1 in sync"
    )
    assert summary(ClusterStatus(), ()) == "0 of 0 brokers active · no partitions"


def test_a_pool_is_drawn_with_a_column_for_each_broker() -> None:
    found = status(view(7, isr=(1, 2)), states=("Fenced", "Active", "Active"))
    assert text_of(found) == [
        "2 of 3 brokers active · 1 at min ISR",
        "",
        "BROKER  STATE       LEADS     IN SYNC",
        "0       Fenced          0         0/1",
        "1       Active          1         1/1",
        "2       Active          0         1/1",
        "",
        "  TOPIC   PARTITION  EPOCH  MIN  0 1 2 STATE",
        "△ orders  7          5      2    F L S at min ISR",
        "",
        "L leader  S in sync  C catching up  E eligible leader  F fenced  M missing",
    ]


def test_more_partitions_than_fit_are_counted_and_the_worst_are_shown() -> None:
    views = [view(number) for number in range(10_000)] + [view(10_000, isr=())]
    lines = text_of(status(*views), height=20)
    assert len(lines) <= 20
    assert any(line.startswith("✕ orders  10000") for line in lines)
    assert lines[-3].startswith("and 99") and lines[-3].endswith("in sync")


def test_many_brokers_are_written_beside_their_letters_within_the_width() -> None:
    states = ("Active",) * 40
    lines = text_of(status(view(isr=(0, 1, 2), replicas=(0, 1, 2)), states=states), height=30)
    assert any(line.endswith("0L 1S 2S in sync") for line in lines)
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("and 30 more") for line in lines)


FIGURES = Figures(
    {0: Disk(61_000_000_000, 100_000_000_000, "Ok"), 2: Disk(9_000_000, 10**9, "Full")},
    (Progress("orders", 7, 2, 12_345, 3100.4, 3982), Progress("orders", 9, 2, 7, None, None)),
)


def test_disks_and_progress_are_shown_where_they_are_known() -> None:
    lines = text_of(status(view(7, isr=(0, 1))), figures=FIGURES)
    assert lines[2:10] == [
        "BROKER  STATE       LEADS     IN SYNC      LAG  DISK",
        "0       Active          1         1/1        0  61.0 GB of 100 GB free",
        "1       Active          0         1/1        0  not reported",
        "2       Active          0         0/1    12.4k  9.0 MB of 1.0 GB free, full",
        "",
        "CATCHING UP",
        "orders-7 on broker 2: 12.3k behind, 3.1k/s, 4.0 s to go",
        "orders-9 on broker 2: 7 behind",
    ]


def test_progress_keeps_the_width_and_the_height() -> None:
    many = tuple(Progress("x" * 249, n, 2, 10**9, 1e9, 10**9) for n in range(500))
    views = [view(number, isr=(0, 1)) for number in range(500)]
    lines = text_of(status(*views), height=24, figures=Figures(FIGURES.disks, many))
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    assert "and 496 more" in lines


@pytest.mark.parametrize(
    ("rate", "to_go_ms", "text"),
    [
        (None, None, "1.5k behind"),
        (20.0, None, "1.5k behind, 20/s, does not come closer"),
        (500.0, 3000, "1.5k behind, 500/s, 3.0 s to go"),
        (5.0, 300_000, "1.5k behind, 5/s, 5 min to go"),
    ],
)
def test_progress_says_when_it_is_over(rate: float | None, to_go_ms: int | None, text: str) -> None:
    assert progress_text(Progress("t", 0, 2, 1500, rate, to_go_ms)) == text


@pytest.mark.parametrize("body", [{}, {"brokers": 7}, {"brokers": [], "catchingUp": [{}]}])
def test_figures_of_another_version_are_not_shown(body: dict[str, Any]) -> None:
    assert read_figures(body) == NO_FIGURES


def test_numbers_are_short() -> None:
    numbers = (0, 999.4, 1500, 99_949, 99_951, 999_499, 1e6, 5e9)
    texts = ["0", "999", "1.5k", "99.9k", "100k", "999k", "1.0M", "5.0G"]
    assert [short(number) for number in numbers] == texts
    assert [bytes_text(n) for n in (0, 999, 1000, 5e10, 9e17)] == [
        *("0 B", "999 B", "1.0 kB", "50.0 GB", "900 PB")
    ]


def test_hostile_names_are_shortened_and_made_visible() -> None:
    topic = TopicView("a\x1b[31m" + "b" * 249, (view(),))
    lines = text_of(ClusterStatus(status().brokers, (topic,)))
    assert "\x1b" not in "".join(lines)
    assert max(map(len, lines)) <= 80
