"""Answer DescribeQuorum: describe the leading operator as a quorum of one.

No quorum of controllers replicates a log: the operator that holds the Lease decides, and its
decisions are Kubernetes objects. It is described as the leader and only voter, with its epoch as
the leader epoch and its metadata version as the log end. The observer is the broker that answers,
with the version that it has.
"""

from functools import partial

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest
from tidemark_broker.kafka_wire.messages.describe_quorum import DESCRIBE_QUORUM_API, METADATA_TOPIC
from tidemark_broker.kafka_wire.messages.schema import Values, each_partition

OPERATOR_NODE_ID = 3000  # above the ids of brokers, of which a pool has 1000 at most


def describe_quorum_handler(context: HandlerContext) -> ApiHandler:
    def respond(request: KafkaRequest, requested: Values) -> Values:
        topics = each_partition(requested["topics"], partial(_partition, context))
        return {"error": ErrorCode.NONE, "topics": topics, "nodes": _nodes(context)}

    return context.answering.sync_handler(DESCRIBE_QUORUM_API, respond)


def _nodes(context: HandlerContext) -> tuple[Values, ...]:
    address = context.controller_address()
    if address is None:
        return ()
    listener = {"name": "CONTROLLER", "host": address.host, "port": address.port}
    return ({"node_id": OPERATOR_NODE_ID, "listeners": (listener,)},)


def _partition(context: HandlerContext, topic: str, requested: Values) -> Values:
    found: Values = {"partition": requested["partition"], "error": ErrorCode.NONE}
    if (topic, requested["partition"]) != (METADATA_TOPIC, 0):
        return found | {"error": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    metadata = context.partitions.metadata
    version = metadata.image_version
    return found | {
        "leader": OPERATOR_NODE_ID,
        "leader_epoch": metadata.controller_epoch,
        "high_watermark": version,
        "voters": ({"replica_id": OPERATOR_NODE_ID, "log_end_offset": version},),
        "observers": ({"replica_id": context.partitions.broker_id, "log_end_offset": version},),
    }
