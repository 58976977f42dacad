"""Render the controller's view of each partition as Prometheus text.

It is the durable state, whichever brokers are dead. The renderer is our own, as in the broker: a
library would make as many objects as there are partitions. All families are in
docs/operations/metrics.md. A few topics are rendered at a time; the caller may let other tasks run
in between.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tidemark_protocol.partition_state import PartitionState

from tidemark_operator.api.unclean_election import UncleanElection
from tidemark_operator.controller.core.views import ElectionKind, TopicView

PARTITIONS_AT_A_TIME = 64


@dataclass(slots=True)
class _Family:
    name: str
    kind: str
    help: str
    lines: list[str] = field(default_factory=list)

    def add(self, labels: str, value: float) -> None:
        self.lines.append(f"{self.name}{{{labels}}} {value}\n")

    @property
    def text(self) -> str:
        head = f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n"
        return head + "".join(self.lines)


class PartitionMetrics:
    """A renderer that takes topics one by one and returns the text in pieces, one per family."""

    def __init__(self) -> None:
        self._info = _Family(
            "tidemark_topic_info", "gauge", "Always 1; labels: guarantees of the topic."
        )
        self._factor = _Family(
            "tidemark_topic_replication_factor",
            "gauge",
            "Replication factor of the topic.",
        )
        self._count = _Family("tidemark_topic_partitions", "gauge", "Partitions of the topic.")
        self._elections = _Family(
            "tidemark_partition_leader_elections_total", "counter", "Leaders elected, by kind."
        )
        self._durable: tuple[tuple[_Family, Callable[[PartitionState], int]], ...] = (
            (
                _Family(
                    "tidemark_partition_leader_id", "gauge", "Broker ID of the leader; -1: none."
                ),
                lambda state: state.leader,
            ),
            (
                _Family("tidemark_partition_durable_leader_epoch", "gauge", "Stored leader epoch."),
                lambda state: state.leader_epoch,
            ),
            (
                _Family(
                    "tidemark_partition_durable_in_sync_replicas",
                    "gauge",
                    "Size of the stored ISR.",
                ),
                lambda state: len(state.in_sync_replicas),
            ),
        )
        self._unclean_elections: tuple[tuple[_Family, Callable[[UncleanElection], int]], ...] = (
            (
                _Family(
                    "tidemark_partition_recovery_epoch",
                    "gauge",
                    "Leader epoch of the last unclean recovery.",
                ),
                lambda unclean_election: unclean_election.leader_epoch,
            ),
            (
                _Family(
                    "tidemark_partition_recovery_lost_records",
                    "gauge",
                    "Records lost by the last unclean recovery, as far as other replicas "
                    "have reported.",
                ),
                lambda unclean_election: unclean_election.lost_records,
            ),
            (
                _Family(
                    "tidemark_partition_recovery_lost_committed_records",
                    "gauge",
                    "Lost records that were below a high watermark; above 0, committed "
                    "records are lost.",
                ),
                lambda unclean_election: unclean_election.lost_committed,
            ),
        )

    def add(self, pool: str, view: TopicView) -> Iterator[None]:
        """Add a topic; yield now and then so that other tasks can run."""
        topic = view.topic
        labels = _labels(pool=pool, topic=topic.topic, topic_id=topic.topic_id)
        config = topic.config
        promises = _labels(
            commit_rule=topic.commit_rule,
            flush=topic.flush,
            cleanup_policy=config.get("cleanup.policy", "delete"),
            unclean_leader_election=config.get("unclean.leader.election.enable", "false"),
        )
        self._info.add(f"{labels},{promises}", 1)
        self._factor.add(labels, topic.replication_factor)
        self._count.add(labels, topic.partition_count)
        for number, state in enumerate(view.partitions, 1):
            named = f'{labels},partition="{state.partition}"'
            for family, value in self._durable:
                family.add(named, value(state))
            counts = view.elections.of((topic.topic_id, state.partition))
            for kind in ElectionKind:
                self._elections.add(f'{named},kind="{kind.value}"', counts[kind])
            if number % PARTITIONS_AT_A_TIME == 0:
                yield
        yield
        for unclean_election in view.recoveries:
            number, cause = unclean_election.partition, unclean_election.cause.value
            named = f'{labels},partition="{number}",cause="{cause}"'
            for unclean_election_family, lost in self._unclean_elections:
                unclean_election_family.add(named, lost(unclean_election))

    def pieces(self) -> Iterator[str]:
        for family in (self._info, self._factor, self._count, self._elections):
            yield family.text
        for family, _ in self._durable:
            yield family.text
        for family, _ in self._unclean_elections:
            yield family.text


def _labels(**labels: str) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
