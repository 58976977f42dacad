"""Compare what a workload run was promised with what the cluster holds.

`check` is pure: it counts the promises record by record; the history of all calls is judged beside
it (`history_checker.py`). `read_back` reads every partition from the log start to the high
watermark, and `compare_replicas` asks each replica's broker for its digest up to there.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from tidemark_client.client import TidemarkClient
from tidemark_client.http_session import HttpSession, TimeLimits
from tidemark_client.metadata import UnreadableResponse
from tidemark_client.outcomes import BrokerError, ReplicaDigest

from tidemark_chaos.group_check import check_group
from tidemark_chaos.history_checker import REPORTED_ONLY, Anomaly
from tidemark_chaos.history_checker import check as check_history
from tidemark_chaos.workload_log import (
    FOREIGN,
    Event,
    WorkloadLog,
    longest_write_gap_ms,
    operations,
    sequence_of,
)

PAUSE_SECONDS = 0.1
GROUPS_LIMITS = TimeLimits(5.0)
MAX_EXAMPLES = 20


class _Offset(msgspec.Struct):
    topic: str
    partition: int
    offset: int


class _Group(msgspec.Struct):
    group: str
    offsets: list[_Offset]


class _Groups(msgspec.Struct):
    """The body of `GET /groups?of=broker`."""

    groups: list[_Group]
    is_loading: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts over all partitions. Only acknowledged records can be lost or duplicated."""

    acknowledged: int
    found: int
    lost: int
    duplicated: int
    unknown: int
    unknown_found: int
    refused_found: int  # refused means certainly not written: a broken promise if found
    misplaced: int  # found, but not at the offset that was acknowledged
    read_otherwise: int  # I7: the consumer had read another value at that offset
    complaints: tuple[str, ...]
    examples: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        return not (
            self.lost
            or self.duplicated
            or self.refused_found
            or self.misplaced
            or self.read_otherwise
            or self.complaints
        )


@dataclass(frozen=True, slots=True)
class ReplicaComparison:
    partition: int
    to_offset: int
    digests: tuple[ReplicaDigest, ...]
    missing: tuple[str, ...]  # replicas that did not answer with that offset in time

    @property
    def is_identical(self) -> bool:
        return not self.missing and len({digest.sha256 for digest in self.digests}) <= 1


@dataclass(frozen=True, slots=True)
class VerifyReport:
    topic: str
    run_id: str
    verdict: Verdict
    replicas: tuple[ReplicaComparison, ...]
    write_gap_ms: float
    latency_p50_ms: float
    latency_p99_ms: float
    anomalies: tuple[Anomaly, ...] = ()  # of the whole history, also those that break no promise
    worst_read_lag_ms: float = 0.0  # a consumer that had not yet seen what was long committed

    @property
    def broken_guarantees(self) -> tuple[Anomaly, ...]:
        return tuple(entry for entry in self.anomalies if entry.name not in REPORTED_ONLY)

    @property
    def is_good(self) -> bool:
        identical = all(entry.is_identical for entry in self.replicas)
        return self.verdict.is_clean and identical and not self.broken_guarantees


def check(workload_log: WorkloadLog, found: Mapping[int, Mapping[int, int]]) -> Verdict:
    """`found`: partition -> offset -> sequence (FOREIGN for records of other runs)."""
    counts = dict.fromkeys(
        ("found", "lost", "duplicated", "unknown_found", "refused_found", "misplaced", "otherwise"),
        0,
    )
    examples: list[str] = []

    def count(what: str, text: str) -> None:
        counts[what] += 1
        if len(examples) < MAX_EXAMPLES:
            examples.append(text)

    for partition in range(workload_log.partitions):
        offsets_of: dict[int, list[int]] = {}
        for offset, sequence in found.get(partition, {}).items():
            if sequence != FOREIGN:
                offsets_of.setdefault(sequence, []).append(offset)
        for sequence, offset in workload_log.acknowledged.get(partition, {}).items():
            places = offsets_of.get(sequence, [])
            name = f"partition {partition}, record {sequence}, acknowledged at offset {offset}"
            counts["found"] += bool(places)
            if not places:
                count("lost", f"lost: {name}")
            elif offset not in places:
                count("misplaced", f"misplaced: {name}, found at {places}")
            if len(places) > 1:
                count("duplicated", f"duplicated: {name}, found at {places}")
        for sequence in workload_log.refused.get(partition, ()):
            if sequence in offsets_of:
                count("refused_found", f"rejected, but found: partition {partition}, {sequence}")
        counts["unknown_found"] += len(
            workload_log.unknown.get(partition, set()) & offsets_of.keys()
        )
        for offset, sequence in workload_log.read.get(partition, {}).items():
            now = found.get(partition, {}).get(offset)
            if now != sequence:  # I7
                count("otherwise", f"partition {partition}, offset {offset}: {sequence}, now {now}")
    return Verdict(
        acknowledged=workload_log.acknowledged_count,
        found=counts["found"],
        lost=counts["lost"],
        duplicated=counts["duplicated"],
        unknown=workload_log.unknown_count,
        unknown_found=counts["unknown_found"],
        refused_found=counts["refused_found"],
        misplaced=counts["misplaced"],
        read_otherwise=counts["otherwise"],
        complaints=tuple(workload_log.complaints[:MAX_EXAMPLES]),
        examples=tuple(examples),
    )


async def verify(
    client: TidemarkClient,
    workload_log: WorkloadLog,
    events: Sequence[Event],
    *,
    within_seconds: float,
) -> VerifyReport:
    """Verify a workload run; `events` are those that made the ledger.

    Raises TimeoutError when a partition cannot be read back in time.
    """
    found: dict[int, dict[int, int]] = {}
    replicas = []
    async with asyncio.timeout(within_seconds):
        for partition in range(workload_log.partitions):
            found[partition] = await read_back(client, workload_log, partition)
    for partition in range(workload_log.partitions):
        replicas.append(
            await compare_replicas(
                client, workload_log.topic, partition, within_seconds=within_seconds
            )
        )
    latencies = sorted(workload_log.latencies_ms)
    of_group: tuple[Anomaly, ...] = ()
    if workload_log.group:
        async with asyncio.timeout(within_seconds):
            committed = await read_positions(client, workload_log.group, workload_log.topic)
        of_group = check_group(events, found, committed)
    history = check_history(operations(events, found, at_ms=time.time() * 1000))
    return VerifyReport(
        topic=workload_log.topic,
        run_id=workload_log.run_id,
        verdict=check(workload_log, found),
        replicas=tuple(replicas),
        write_gap_ms=round(longest_write_gap_ms(workload_log), 1),
        latency_p50_ms=percentile(latencies, 50),
        latency_p99_ms=percentile(latencies, 99),
        anomalies=(*history.anomalies, *of_group),
        worst_read_lag_ms=round(history.worst_realtime_lag_us / 1000, 1),
    )


async def read_back(
    client: TidemarkClient, workload_log: WorkloadLog, partition: int
) -> dict[int, int]:
    """Offset -> sequence, of all that is committed; bounded by the caller's timeout."""
    found: dict[int, int] = {}
    offset: int | None = None
    end = -1
    while offset is None or offset < end:
        try:
            if offset is None:
                committed = await client.offsets(workload_log.topic, partition)
                offset, end = committed.log_start_offset, committed.high_watermark
                continue
            page = await client.fetch(workload_log.topic, partition, offset, max_wait_ms=0)
        except (BrokerError, UnreadableResponse) as error:
            if isinstance(error, BrokerError) and not error.is_retriable:
                raise
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        for record in page.records:
            found[record.offset] = sequence_of(workload_log.run_id, partition, record.value)
        if page.next_offset <= offset:
            await asyncio.sleep(PAUSE_SECONDS)
        offset = max(offset, page.next_offset)
    return found


async def read_positions(client: TidemarkClient, group: str, topic: str) -> dict[int, int]:
    """Return the committed positions of a group by partition; bounded by the caller's timeout.

    A broker that does not answer, or still loads offsets, is asked again: it may coordinate the
    group.
    """
    session = HttpSession(authenticates=True)
    try:
        while True:
            answers = [await _groups_at(session, url) for url in (await client.brokers()).values()]
            if answers and all(each is not None and not each.is_loading for each in answers):
                found: dict[int, int] = {}
                for each in (known for answer in answers if answer for known in answer.groups):
                    for offset in each.offsets if each.group == group else ():
                        if offset.topic == topic:
                            known = found.get(offset.partition, 0)
                            found[offset.partition] = max(known, offset.offset)
                return found
            await asyncio.sleep(PAUSE_SECONDS)
    finally:
        await session.close()


async def _groups_at(session: HttpSession, url: str) -> _Groups | None:
    """Return the groups that a broker coordinates; None without a response."""
    try:
        response = await session.get(f"{url}/groups?of=broker", GROUPS_LIMITS)
        return msgspec.json.decode(response.body, type=_Groups)
    except (OSError, msgspec.DecodeError):
        return None


async def compare_replicas(
    client: TidemarkClient, topic: str, partition: int, *, within_seconds: float
) -> ReplicaComparison:
    """Compare all replicas up to the leader's present high watermark.

    It waits until each replica has that offset.
    """
    deadline = asyncio.get_running_loop().time() + within_seconds
    to_offset = (await client.offsets(topic, partition)).high_watermark
    view = next(
        entry for entry in (await client.topic(topic)).partitions if entry.partition == partition
    )
    urls = await client.brokers()
    digests: list[ReplicaDigest] = []
    missing: list[str] = []
    for broker_id in view.replicas:
        response: ReplicaDigest | str = "no address found"
        while (url := urls.get(broker_id)) is not None:
            response = await _digest(client, url, topic, partition, to_offset)
            if isinstance(response, ReplicaDigest) or asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(PAUSE_SECONDS)
        if isinstance(response, ReplicaDigest):
            digests.append(response)
        else:
            missing.append(f"broker {broker_id}: {response}")
    return ReplicaComparison(partition, to_offset, tuple(digests), tuple(missing))


async def _digest(
    client: TidemarkClient, url: str, topic: str, partition: int, to_offset: int
) -> ReplicaDigest | str:
    """Return a replica's digest, or the reason why there is none yet."""
    try:
        digest = await client.replica(url, topic, partition, to_offset=to_offset)
    except (BrokerError, UnreadableResponse) as error:
        return str(error)
    if digest.log_end_offset < to_offset or digest.to_offset != to_offset:
        return f"it has offsets below {digest.log_end_offset}, not yet {to_offset}"
    return digest


def percentile(ordered: list[float], percent: int) -> float:
    """Nearest rank, of values in order; 0 of none."""
    if not ordered:
        return 0.0
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
