"""Answer DescribeProducers for any replica on this broker, as Kafka does.

Producers are read once, at their partition's turn, and the answer is made from that.
"""

from collections.abc import Sequence

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.topic_names import topic_name_fault

from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest
from tidemark_broker.kafka_wire.messages.describe_producers import DESCRIBE_PRODUCERS_API
from tidemark_broker.kafka_wire.messages.schema import Each, Values
from tidemark_broker.log.producer_state_entry import ProducerBatch
from tidemark_broker.replication.replica_manager import ReplicaManager


def describe_producers_handler(context: HandlerContext) -> ApiHandler:
    partitions = context.partitions

    def respond(request: KafkaRequest, requested: Values) -> Values:
        return {"topics": Each(requested["topics"], lambda topic: _topic(partitions, topic))}

    return context.answering.sync_handler(DESCRIBE_PRODUCERS_API, respond)


def _topic(partitions: ReplicaManager, requested: Values) -> Values:
    topic = requested["topic"]
    numbers: Sequence[int] = requested["partitions"]
    return {
        "topic": topic,
        "partitions": Each(numbers, lambda number: _partition(partitions, topic, number)),
    }


def _partition(partitions: ReplicaManager, topic: str, partition: int) -> Values:
    found: Values = {"partition": partition, "error": ErrorCode.NONE}
    fault = topic_name_fault(topic)
    if fault:
        return found | {"error": ErrorCode.INVALID_TOPIC_EXCEPTION, "message": fault}
    known = partitions.metadata.served_topic(topic)
    replica = None if known is None else partitions.hosted(known.topic_id, partition)
    if replica is None:
        if known is None or not partitions.metadata.has_partition(topic, partition):
            return found | {"error": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        message = f"broker {partitions.broker_id} has no replica of it"
        return found | {"error": ErrorCode.NOT_LEADER_OR_FOLLOWER, "message": message}
    newest = [
        (producer_id, entry.batches[-1])
        for producer_id, entry in replica.log.producers
        if entry.batches
    ]
    return found | {"producers": Each(newest, _producer)}


def _producer(known: tuple[int, ProducerBatch]) -> Values:
    producer_id, batch = known
    return {
        "producer_id": producer_id,
        "producer_epoch": batch.producer_epoch,
        "last_sequence": batch.last_sequence,
        "last_timestamp_ms": batch.timestamp_ms,
    }
