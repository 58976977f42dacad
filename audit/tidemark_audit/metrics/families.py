"""Define the families that the audit reads, and what it keeps of each.

The names are those of docs/operations/metrics.md.

`STEP` values stay equal for long and are kept as runs of equal values: nothing is lost. `RISING`
ones are kept as runs that only rise, with both ends: a step back is seen, the values between are
not. `SPREAD` ones are kept as a histogram: quantiles are right to 1 %.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from tidemark_audit.metrics.kafka_names import (
    LEADERS_ONLY,
    OF_THEMSELVES,
    SAID_BY_KAFKA,
    kafka_names,
)

PREFIX = "tidemark_"


class MetricShape(IntEnum):
    STEP = 0
    RISING = 1
    SPREAD = 2


class Exporter(IntEnum):
    """Name who exports a family; brokers and operator may be scraped at different intervals."""

    BROKER = 0
    OPERATOR = 1


@dataclass(frozen=True, slots=True)
class Family:
    name: str  # without the prefix
    shape: MetricShape
    exporter: Exporter = Exporter.BROKER
    detail: str = ""  # the label that tells its series apart beside topic, partition and brokers


_BROKERS = (
    Family("partition_replicas", MetricShape.STEP),
    Family("partition_in_sync_replicas", MetricShape.STEP),
    Family("partition_min_in_sync_replicas", MetricShape.STEP),
    Family("partition_reassigning", MetricShape.STEP),
    Family("partition_replica_lag_max_seconds", MetricShape.STEP),
    Family("partition_isr_shrinks_total", MetricShape.STEP, detail="reason"),
    Family("partition_isr_expands_total", MetricShape.STEP),
    Family("partition_election_committed_gap_records", MetricShape.STEP),
    Family("partition_largest_append_records", MetricShape.STEP),
    Family("follower_in_sync", MetricShape.STEP),
    Family("follower_lag_records", MetricShape.SPREAD),
    Family("follower_caught_up_age_seconds", MetricShape.SPREAD),
    Family("replica_is_leader", MetricShape.STEP),
    Family("replica_leader_epoch", MetricShape.STEP),
    Family("replica_leader_epoch_start_offset", MetricShape.STEP),
    Family("replica_high_watermark_offset", MetricShape.RISING),
    Family("replica_log_end_offset", MetricShape.RISING),
    Family("replica_committed_truncated_records_total", MetricShape.STEP),
    Family("replica_is_retained", MetricShape.STEP),
    Family("replica_digest_offset", MetricShape.STEP),
    Family("replica_digest", MetricShape.STEP),
    Family("broker_epoch", MetricShape.STEP),
    Family("crc_failures_total", MetricShape.STEP, detail="where"),
)
_OPERATOR = (
    Family("broker_planned_restart", MetricShape.STEP, Exporter.OPERATOR),
    Family("broker_planned_restarts_total", MetricShape.STEP, Exporter.OPERATOR),
    Family("broker_clock_skew_seconds", MetricShape.SPREAD, Exporter.OPERATOR),
    Family("partition_leader_elections_total", MetricShape.STEP, Exporter.OPERATOR, detail="kind"),
    Family("partition_leader_id", MetricShape.STEP, Exporter.OPERATOR),
    Family("partition_durable_in_sync_replicas", MetricShape.STEP, Exporter.OPERATOR),
    Family("partition_recovery_epoch", MetricShape.STEP, Exporter.OPERATOR, detail="cause"),
    Family(
        "partition_recovery_lost_committed_records",
        MetricShape.STEP,
        Exporter.OPERATOR,
        detail="cause",
    ),
)
# What Kafka says of its effective min.insync.replicas, whose number it does not export.
_KAFKA = (
    Family("partition_under_min_isr", MetricShape.STEP),
    Family("partition_at_min_isr", MetricShape.STEP),
)
FAMILIES: Mapping[str, Family] = {
    PREFIX + family.name: family for family in (*_BROKERS, *_OPERATOR, *_KAFKA)
}
# A family is not missing where all of these are there.
STAND_FOR: Mapping[str, frozenset[str]] = {
    "partition_min_in_sync_replicas": frozenset(family.name for family in _KAFKA)
}

# What sources look for: ours, and what Kafka calls some of them.
READ_NAMES = frozenset(FAMILIES) | frozenset(kafka_names().families)

# Labels by which two Prometheus servers, or two targets for one broker, tell their series apart.
_SCRAPE_LABELS = (
    "prometheus_replica", "__replica__", "replica", "prometheus", "job", "instance", "pod",
)  # fmt: skip


class SeriesKey(NamedTuple):
    """Identify a series; equal keys with another `scrape` are two scrapes of one thing."""

    family: str  # without the prefix
    cluster: str = ""
    pool: str = ""
    topic: str = ""
    topic_id: str = ""
    partition: int = -1
    broker: str = ""
    follower: str = ""
    detail: str = ""
    scrape: str = ""


MOST_PARTITION = 2**31 - 1  # Kafka's int32
CRC_FAILURES = PREFIX + "crc_failures_total"


class BadLabels(ValueError):
    """Report a series of one of our families whose labels cannot be read."""


def series_key(labels: Mapping[str, str]) -> SeriesKey | None:
    """Return the key of a series; None for a family that the audit does not read.

    Raises BadLabels.
    """
    name = labels.get("__name__", "")
    family = FAMILIES.get(name)
    broker, follower = labels.get("broker", ""), labels.get("follower", "")
    detail = labels.get(family.detail, "") if family is not None and family.detail else ""
    if family is None:
        ours = kafka_names().families.get(name)
        if ours is None:
            return None
        family = FAMILIES[PREFIX + ours]
        broker = kafka_names().broker_of(labels)
        follower = broker if ours in OF_THEMSELVES else ""
        detail = SAID_BY_KAFKA if ours in LEADERS_ONLY else ""
    elif name == CRC_FAILURES:  # of a process: of whose, only its address tells
        broker = broker or labels.get("instance", "") or labels.get("pod", "")
    partition = labels.get("partition") or "-1"  # an empty label is none
    if not partition.removeprefix("-").isdecimal() or int(partition) > MOST_PARTITION:
        raise BadLabels(f"{as_text(labels)}: expected a number as partition, found {partition!r}")
    return SeriesKey(
        family=family.name,
        cluster=labels.get("cluster", ""),
        pool=labels.get("pool", ""),
        topic=labels.get("topic", ""),
        topic_id=labels.get("topic_id", ""),
        partition=int(partition),
        broker=broker,
        follower=follower,
        detail=detail,
        scrape="|".join(labels.get(label, "") for label in _SCRAPE_LABELS).strip("|"),
    )


def as_text(labels: Mapping[str, str]) -> str:
    """Format a series as Prometheus writes it."""
    name = labels.get("__name__", "")
    rest = ",".join(
        f'{label}="{escape(text)}"' for label, text in labels.items() if label != "__name__"
    )
    return f"{name}{{{rest}}}"


def escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def key_as_text(key: SeriesKey) -> str:
    """Format the series of a key, with the labels that the audit knows."""
    family = FAMILIES[PREFIX + key.family]
    labels = {"__name__": PREFIX + key.family}
    for label in ("cluster", "pool", "topic", "topic_id"):
        if getattr(key, label):
            labels[label] = getattr(key, label)
    if key.partition >= 0:
        labels["partition"] = str(key.partition)
    for label in ("broker", "follower"):
        if getattr(key, label):
            labels[label] = getattr(key, label)
    if key.detail:
        labels[family.detail] = key.detail
    return as_text(labels)
