"""Explain in sentences why a partition has no leader, and what a person can do."""

from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import PartitionState, TopicState

from tidemark_operator.api.elect_annotation import ELECT_ANNOTATION, LeaderChoice, choice_text
from tidemark_operator.controller.core.elections import ElectionEvidence
from tidemark_operator.controller.core.eligibility import Eligibility, Replica
from tidemark_operator.controller.core.unclean_recovery import has_valid_entry

NOTHING_SAID = (-2, 0)  # in the place of (last epoch, log end offset): below an empty log


def leaderless_sentence(
    topic: TopicState,
    partition: PartitionState,
    eligibility: Eligibility,
    evidence: ElectionEvidence,
    *,
    is_lasting: bool = True,
) -> str:
    """Return a sentence about a served partition without a leader.

    It names the exact command that would decide only when that lasts: brokers that start come back
    by themselves, and no record has to be given up.
    """
    replica = (topic.topic_id, partition.partition)
    active = [b for b in partition.replicas if eligibility.is_active(b, replica)]
    text = f"partition {partition.partition} has no leader: "
    helpful = list(partition.replicas)
    if has_valid_entry(topic, partition, eligibility):
        entries = partition.in_sync_replicas + partition.eligible_leaders
        helpful = [m.broker_id for m in entries if eligibility.is_valid(m, replica, topic.flush)]
        text += (
            f"only brokers {_names(helpful)} are known to hold all committed records,"
            " and none of them is active"
        )
    else:
        unheard = [b for b in partition.replicas if evidence.reports.log_end(b, replica) is None]
        text += "no replica is known to hold all committed records"
        if unheard:
            text += f", and brokers {_names(unheard)} have not reported their logs"
        elif longest := _with_longest_log(partition, replica, evidence):
            text += f", and brokers {_names(longest)}, which have the longest log, are not active"
    if not active:
        return f"{text}; start at least one of brokers {_names(helpful)}"
    if not is_lasting:
        return f"{text}; wait, they may be starting"
    best = max(active, key=lambda b: (evidence.reports.log_end(b, replica) or NOTHING_SAID, -b))
    choice = choice_text(LeaderChoice(partition.partition, best, partition.leader_epoch))
    return (
        f"{text}; start them again. Only if they are lost permanently, elect a replica"
        f" without the records that only they have: tidemark elect {topic.topic}"
        f" {partition.partition} {best}, or on Kubernetes annotate the Topic with"
        f" {ELECT_ANNOTATION}={choice}"
    )


def _with_longest_log(
    partition: PartitionState, replica: Replica, evidence: ElectionEvidence
) -> list[BrokerId]:
    ends = {b: evidence.reports.log_end(b, replica) or NOTHING_SAID for b in partition.replicas}
    return [b for b, end in ends.items() if end == max(ends.values())]


def _names(broker_ids: list[BrokerId]) -> str:
    return ", ".join(map(str, sorted(set(broker_ids))))
