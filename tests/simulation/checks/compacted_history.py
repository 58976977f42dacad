"""Which topics are compacted, and what their clients' history must show in the end."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidemark_chaos.history_checker import Operation, SuspendedGuarantee
from tidemark_protocol.ids import TopicId

from tests.simulation.checks.cluster_observer import ClusterObserver
from tests.simulation.checks.committed_log import CommittedLog
from tests.simulation.checks.compacted_log import CompactedLog
from tests.simulation.checks.producer_expiry import ProducerExpiry


def new_committed_log(name: str, cluster: ClusterObserver, topic_id: TopicId) -> CommittedLog:
    log = CommittedLog(name)
    if cluster.is_compacted(topic_id):
        log = CompactedLog(name, cluster.latest_wall_ms)
        log.sees_all = lambda: not cluster.has_flipped_bits
    log.expiry = ProducerExpiry(cluster.producers_expire_ms(topic_id), lambda: cluster.now_us)
    return log


def with_compacted(
    suspensions: Mapping[str, SuspendedGuarantee], logs: Mapping[str, CommittedLog]
) -> dict[str, SuspendedGuarantee]:
    """So that the history judges no record that is not shown: `check_last_reads` does."""
    compacted = {name: log for name, log in logs.items() if log.is_compacted}
    return {
        **suspensions,
        **{
            name: replace(suspensions.get(name, SuspendedGuarantee()), is_compacted=True)
            for name in compacted
        },
    }


def check_last_reads(history: Iterable[Operation], logs: Mapping[str, CommittedLog]) -> None:
    """Whoever read all of a compacted partition was shown the last record of each key. Raises
    Violation."""
    shown: dict[str, set[int]] = {}
    bounds: dict[str, tuple[int, int]] = {}
    for poll in history:
        if poll.is_final:
            shown.setdefault(poll.partition, set()).update(poll.offsets)
            # The largest log start that it was told: who was sent on to one reads on from there,
            # also at a replica that has not heard of that start yet.
            log_start, _ = bounds.get(poll.partition, (0, 0))
            log_start = max(log_start, poll.log_start_offset)
            bounds[poll.partition] = log_start, poll.high_watermark
    for name, offsets in shown.items():
        log = logs.get(name)
        if isinstance(log, CompactedLog):
            log.check_whole_read(offsets, *bounds[name])
