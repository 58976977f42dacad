"""Render the metrics of the broker as a whole, and define what all its metrics share.

Prometheus text format 0.0.4 by a renderer of our own: 2,000 partitions are some 60,000 lines, which
prometheus-client's registry would build from objects. Every family is in
docs/operations/metrics.md. The metrics of groups are of all groups that a broker coordinates
together: there may be thousands of them, with names of clients' choice. Only committed offsets and
their lags name the group, and of those at most MOST_GROUP_OFFSETS are exported.
"""

import os
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path

from tidemark_protocol.ids import BrokerId
from tidemark_protocol.loop_lag import LoopLag

from tidemark_broker.coordinator.core.classic_group import GroupState
from tidemark_broker.coordinator.core.requests import GroupCounters, GroupGauges, GroupOffset
from tidemark_broker.log.disk import DiskSpace

MOST_GROUP_OFFSETS = 1000
OFFSETS_AT_A_TIME = 64  # under a millisecond of the loop
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
PREFIX = "tidemark_"
_STARTED_SECONDS = time.time()


class MetricsProfile(Enum):
    """The families that a broker exports; each profile includes those before it."""

    MINIMAL = "minimal"  # in-sync sets, lag, epochs, watermarks, proof of loss
    AUDIT = "audit"
    FULL = "full"  # digests too: every committed record is read once more

    def includes(self, other: "MetricsProfile") -> bool:
        order = list(MetricsProfile)
        return order.index(other) <= order.index(self)


@dataclass(frozen=True, slots=True)
class Family:
    name: str  # without the prefix
    kind: str
    help: str
    profile: MetricsProfile = MetricsProfile.AUDIT  # the least that exports it

    @property
    def head(self) -> str:
        return f"# HELP {PREFIX}{self.name} {self.help}\n# TYPE {PREFIX}{self.name} {self.kind}\n"

    def sample(self, value: float, **labels: str) -> str:
        written = ",".join(f'{name}="{escape(text)}"' for name, text in labels.items())
        return f"{PREFIX}{self.name}{f'{{{written}}}' if labels else ''} {value}\n"


def escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class CrcFailures:
    """The number of batches that failed their CRC, by where it was found."""

    PLACES = ("produce", "fetch", "replica", "recovery", "compaction", "digest")
    FAMILY = Family("crc_failures_total", "counter", "Record batches that failed their CRC.")

    def __init__(self) -> None:
        self._counts = dict.fromkeys(self.PLACES, 0)

    def note(self, where: str) -> None:
        self._counts[where] += 1

    def render(self) -> Iterator[str]:
        yield self.FAMILY.head
        for where, count in self._counts.items():
            yield self.FAMILY.sample(count, where=where)


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """The facts of a broker itself."""

    broker_id: BrokerId
    broker_epoch: int  # -1: not registered yet
    pool: str
    rack: str
    profile: MetricsProfile
    fsyncs: int
    loop_lag: LoopLag
    disk_space: DiskSpace = DiskSpace(-1, -1)
    certificate_end_s: float = 0.0  # wall clock; 0: a pool without TLS, or none yet
    client_authorities_end_s: float = 0.0  # 0: there are none


INFO = Family("broker_info", "gauge", "Always 1; labels: the broker.")
EPOCH = Family("broker_epoch", "gauge", "Broker epoch; -1: not registered.")
LOOP_LAG = Family(
    "broker_loop_lag_seconds",
    "gauge",
    "Last measured delay of the event loop.",
    MetricsProfile.MINIMAL,
)
LOOP_LAG_MAX = Family(
    "broker_loop_lag_max_seconds",
    "gauge",
    "Longest delay of the event loop in the last one to two minutes.",
    MetricsProfile.MINIMAL,
)
DISK_FREE = Family(
    "broker_disk_free_bytes",
    "gauge",
    "Free bytes of the volume of the logs; -1: not known yet.",
    MetricsProfile.MINIMAL,
)
DISK_SIZE = Family(
    "broker_disk_size_bytes",
    "gauge",
    "Size of the volume of the logs; -1: not known yet.",
    MetricsProfile.MINIMAL,
)
CERTIFICATE_EXPIRY = Family(
    "broker_certificate_expiry_timestamp_seconds",
    "gauge",
    "End of the broker's certificate.",
    MetricsProfile.MINIMAL,
)
CLIENT_AUTHORITY_EXPIRY = Family(
    "broker_client_authority_expiry_timestamp_seconds",
    "gauge",
    "First end of an authority of clients' certificates.",
    MetricsProfile.MINIMAL,
)
FSYNCS = Family("fsyncs_total", "counter", "Syncs of files and directories.")


def render_broker(facts: BrokerFacts) -> Iterator[str]:
    names = {"broker": str(facts.broker_id), "pool": facts.pool}
    yield INFO.head
    yield INFO.sample(
        1, **names, rack=facts.rack, version=_version(), metrics_profile=facts.profile.value
    )
    yield EPOCH.head
    yield EPOCH.sample(facts.broker_epoch, **names)
    yield LOOP_LAG.head
    yield LOOP_LAG.sample(round(facts.loop_lag.last_s, 6), **names)
    yield LOOP_LAG_MAX.head
    yield LOOP_LAG_MAX.sample(round(facts.loop_lag.max_s, 6), **names)
    yield DISK_FREE.head
    yield DISK_FREE.sample(facts.disk_space.free_bytes, **names)
    yield DISK_SIZE.head
    yield DISK_SIZE.sample(facts.disk_space.total_bytes, **names)
    for family, end_s in (
        (CERTIFICATE_EXPIRY, facts.certificate_end_s),
        (CLIENT_AUTHORITY_EXPIRY, facts.client_authorities_end_s),
    ):
        if end_s:
            yield family.head
            yield family.sample(int(end_s), **names)
    if facts.profile.includes(FSYNCS.profile):
        yield FSYNCS.head
        yield FSYNCS.sample(facts.fsyncs)


@cache
def _version() -> str:
    try:
        return version("tidemark")
    except PackageNotFoundError:  # run from a directory, not installed
        return "unknown"


def render_process() -> Iterator[str]:
    """Render process metrics under the common names, so that known dashboards work."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    try:
        resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
        with os.scandir("/proc/self/fd") as entries:  # thousands: paths would take 5 times as long
            open_files = sum(1 for _ in entries)
    except OSError:
        resident_pages = open_files = 0
    values = (
        ("process_cpu_seconds_total", "counter", usage.ru_utime + usage.ru_stime),
        ("process_resident_memory_bytes", "gauge", resident_pages * resource.getpagesize()),
        ("process_open_fds", "gauge", open_files),
        ("process_start_time_seconds", "gauge", round(_STARTED_SECONDS, 3)),
    )
    for name, kind, value in values:
        yield (
            f"# HELP {name} Measured for the broker process.\n# TYPE {name} {kind}\n{name} "
            f"{value}\n"
        )


GROUPS = Family("groups", "gauge", "Groups that this broker coordinates, by state.")
MEMBERS = Family("group_members", "gauge", "Members of the groups that this broker coordinates.")
OFFSETS = Family(
    "group_offsets",
    "gauge",
    "Partitions with committed offsets of the groups that this broker coordinates.",
)
REBALANCES = Family("group_rebalances_total", "counter", "Completed rebalances of groups.")
COMMITS = Family("group_offset_commits_total", "counter", "Committed offsets.")


def render_groups(
    gauges: GroupGauges, counts: GroupCounters, profile: MetricsProfile
) -> Iterator[str]:
    if not profile.includes(GROUPS.profile):
        return
    yield GROUPS.head
    for state in GroupState:
        yield GROUPS.sample(gauges.groups[state.value], state=state.value)
    for family, value in (
        (MEMBERS, gauges.members),
        (OFFSETS, gauges.offsets),
        (REBALANCES, counts.completed_rebalances),
        (COMMITS, counts.committed_offsets),
    ):
        yield family.head
        yield family.sample(value)


COMMITTED = Family("group_committed_offset", "gauge", "Committed offset of a group.")
LAG = Family(
    "group_lag_records",
    "gauge",
    "High watermark minus the committed offset, where this broker leads the partition.",
)


NOT_EXPORTED = Family(
    "group_offsets_not_exported",
    "gauge",
    "Partitions of group_offsets without series for offset and lag, for their number.",
)


def render_group_offsets(
    offsets: Sequence[GroupOffset], committed: int, profile: MetricsProfile
) -> Iterator[str]:
    """Render these offsets, and how many of all that are `committed` they leave out."""
    if not profile.includes(COMMITTED.profile):
        return
    yield NOT_EXPORTED.head
    yield NOT_EXPORTED.sample(max(0, committed - len(offsets)))
    yield COMMITTED.head
    yield from _in_parts(COMMITTED.sample(each.offset, **_labels(each)) for each in offsets)
    yield LAG.head
    yield from _in_parts(
        LAG.sample(each.lag_records, **_labels(each)) for each in offsets if each.lag_records >= 0
    )


def _labels(offset: GroupOffset) -> dict[str, str]:
    return {
        "group": offset.group_id,
        "topic": offset.topic,
        "topic_id": offset.topic_id,
        "partition": str(offset.partition),
    }


def _in_parts(lines: Iterator[str]) -> Iterator[str]:
    while part := "".join(islice(lines, OFFSETS_AT_A_TIME)):
        yield part
