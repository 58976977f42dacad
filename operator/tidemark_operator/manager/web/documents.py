"""Convert what the controller shows of a pool to the page's JSON.

A partition is a row, an array in the order of `PARTITION_FIELDS`: a large pool has thousands.
"""

from collections.abc import Sequence

from tidemark_protocol.controller_messages import Endpoints
from tidemark_protocol.partition_state import PartitionState

from tidemark_operator.controller.core.event_texts import is_warning, kind_of, sentence_of
from tidemark_operator.controller.core.explanations import Answer
from tidemark_operator.controller.core.timeline import Event, PartitionChanged, PartitionsCreated
from tidemark_operator.controller.core.views import BrokerView, TopicView

PARTITION_FIELDS = (
    "partition",
    "leader",
    "leaderEpoch",
    "partitionEpoch",
    "minIsr",
    "replicas",
    "isr",
    "eligibleLeaders",
    "adding",
    "removing",
)

Document = dict[str, object]
Row = tuple[object, ...]


def broker_document(view: BrokerView) -> Document:
    return {
        "id": view.broker_id,
        "epoch": view.broker_epoch,
        "state": view.state,
        "rack": view.rack,
        "address": address_of(view.endpoints),
        "url": view.endpoints.advertised_http_url,
        "restarting": view.is_planned_restart,
        "clockSkewMs": view.clock_skew_ms,
    }


def address_of(endpoints: Endpoints) -> str:
    """Return host:port of the broker's Kafka listener."""
    host = f"[{endpoints.host}]" if ":" in endpoints.host else endpoints.host
    return f"{host}:{endpoints.kafka_port}"


def topic_document(view: TopicView) -> Document:
    """Return the topic without its partitions."""
    topic = view.topic
    return {
        "topic": topic.topic,
        "object": view.object_name,
        "partitions": topic.partition_count,
        "replicationFactor": topic.replication_factor,
        "commitRule": topic.commit_rule,
        "flush": topic.flush,
        "deletionPolicy": view.deletion_policy,
        "retained": view.is_retained,
        "config": topic.config,
        "missingSlices": view.missing_slices,
        "notices": view.notices,
    }


def partition_row(state: PartitionState) -> Row:
    return (
        state.partition,
        state.leader,
        state.leader_epoch,
        state.partition_epoch,
        state.min_insync_replicas,
        state.replicas,
        tuple(member.broker_id for member in state.in_sync_replicas),
        tuple(member.broker_id for member in state.eligible_leaders),
        state.adding_replicas,
        state.removing_replicas,
    )


def event_document(event: Event) -> Document:
    """Return an event with what undoes it: the page shows earlier moments."""
    document: Document = {
        "number": event.number,
        "atMs": event.at_ms,
        "kind": kind_of(event),
        "warning": is_warning(event),
        "topic": event.topic,
        "partition": event.partition,
        "broker": event.broker_id,
        "sentence": sentence_of(event),
    }
    match event.fact:
        case PartitionChanged(topic, before):
            document |= {"topicId": topic.topic_id, "before": partition_row(before)}
        case PartitionsCreated(topic, partitions):
            numbers = [state.partition for state in partitions]
            document |= {"topicId": topic.topic_id, "created": numbers}
    return document


def why_document(answer: Answer) -> Document:
    return {"question": answer.question, "answer": answer.answer, "atMs": answer.at_ms}


def changed_partitions(
    before: Sequence[PartitionState], after: Sequence[PartitionState]
) -> tuple[list[PartitionState], list[int]]:
    """Return partitions that are new or another value, and numbers of those that left."""
    if [state.partition for state in before] == [state.partition for state in after]:
        pairs = zip(before, after, strict=True)
        return [new for old, new in pairs if new is not old], []
    known = {state.partition: state for state in before}
    changed = [new for new in after if known.pop(new.partition, None) is not new]
    return changed, sorted(known)
