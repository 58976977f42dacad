"""Intervals that share a broker and touch are one incident."""

from tidemark_audit.results import IntervalKind, TopicPartition
from tidemark_audit.rules.incidents import incidents, still

from tests.support.audit_facts import (
    HOUR_MS,
    ORDERS,
    audit_analysis,
    interval,
    partition_facts,
)

DEGRADED, BELOW = IntervalKind.UNDER_REPLICATED, IntervalKind.UNDER_MIN_ISR
PAYMENTS = TopicPartition("payments", 0)


def test_one_brokers_fall_in_two_partitions_is_one_incident() -> None:
    (found,) = incidents(
        audit_analysis(
            partition_facts(intervals=[interval(DEGRADED, 10_000, 20_000)]),
            partition_facts(PAYMENTS, intervals=[interval(DEGRADED, 15_000, 30_000, of=PAYMENTS)]),
        )
    )
    assert (found.subject, found.partitions) == ("broker 3", (ORDERS, PAYMENTS))
    assert (found.start_ms, found.end_ms, found.lost_ms([DEGRADED])) == (10_000, 30_000, 25_000)
    assert found.lost_ms([BELOW]) == 0


def test_a_gap_longer_than_two_scrapes_parts_two_incidents() -> None:
    def count(second_ms: int) -> int:
        both = [interval(DEGRADED, 0, 10_000), interval(DEGRADED, second_ms, second_ms + 1)]
        return len(incidents(audit_analysis(partition_facts(intervals=both))))

    assert (count(12_500), count(12_501)) == (1, 2)


def test_a_long_absence_reaches_over_a_short_one_within_it() -> None:
    three = [(0, 60_000), (10_000, 11_000), (60_000, 70_000)]
    intervals = [interval(DEGRADED, start, end) for start, end in three]
    assert len(incidents(audit_analysis(partition_facts(intervals=intervals)))) == 1


def test_planned_and_unplanned_absences_are_apart() -> None:
    both = [interval(DEGRADED, 0, 10_000, planned=True), interval(DEGRADED, 10_000, 20_000)]
    found = incidents(audit_analysis(partition_facts(intervals=both)))
    assert [each.planned for each in found] == [True, False]


def test_brokers_join_through_an_interval_that_lacks_both() -> None:
    three = [
        interval(DEGRADED, 0, 10_000, brokers=("2",)),
        interval(BELOW, 10_000, 20_000, brokers=("2", "3")),
        interval(DEGRADED, 20_000, 30_000, brokers=("3",)),
    ]
    (found,) = incidents(audit_analysis(partition_facts(intervals=three)))
    assert found.subject == "brokers 2, 3"


def test_without_a_known_broker_a_partition_has_its_own_incident() -> None:
    found = incidents(
        audit_analysis(
            partition_facts(intervals=[interval(DEGRADED, 0, 10_000, brokers=())]),
            partition_facts(
                PAYMENTS, intervals=[interval(DEGRADED, 0, 10_000, of=PAYMENTS, brokers=())]
            ),
        )
    )
    assert [each.subject for each in found] == ["orders-0", "payments-0"]


def test_brokers_of_two_clusters_with_one_id_are_two_and_come_in_order_of_time() -> None:
    found = incidents(
        audit_analysis(
            partition_facts(cluster="east", intervals=[interval(DEGRADED, 9000, 20_000)]),
            partition_facts(
                cluster="west", intervals=[interval(DEGRADED, 0, 20_000, earlier_ms=5000)]
            ),
        )
    )
    assert [(each.subject, each.start_ms) for each in found] == [
        ("west: broker 3", -5000),
        ("east: broker 3", 9000),
    ]


def test_what_is_open_at_the_windows_end_is_said() -> None:
    analysis = audit_analysis()
    assert still([interval(DEGRADED, 0, HOUR_MS)], analysis).endswith("at the end of the window")
    assert still([interval(DEGRADED, 0, HOUR_MS - 1)], analysis) == ""
