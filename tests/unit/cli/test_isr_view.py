"""The in-sync sets of a pool as lines of a terminal."""

from typing import Any

import pytest
from tidemark_cli.isr_view import Health, cell_of, health_of, lines_of, rows_of, summary
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


def text_of(found: ClusterStatus, width: int = 80, height: int = 40) -> list[str]:
    return [line.plain.rstrip() for line in lines_of(found, width=width, height=height)]


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
    partition = view(isr=(0, 1), replicas=(0, 1, 2, 3, 4, 5, 6))
    letters = [cell_of(partition, number, brokers) for number in range(8)]
    assert letters == ["L", "S", "F", "C", "C", "M", "M", "·"]


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
        "L leader  S in sync  C catching up  F fenced  M missing",
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


def test_hostile_names_are_shortened_and_made_visible() -> None:
    topic = TopicView("a\x1b[31m" + "b" * 249, (view(),))
    lines = text_of(ClusterStatus(status().brokers, (topic,)))
    assert "\x1b" not in "".join(lines)
    assert max(map(len, lines)) <= 80
