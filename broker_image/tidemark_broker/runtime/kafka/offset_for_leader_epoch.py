"""OffsetForLeaderEpoch: where a client's epoch ends in the leader's log (KIP-320)."""

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import LeaderEpoch

from tidemark_broker.runtime.consumer_reads import epoch_refusal
from tidemark_broker.runtime.kafka.requests import ApiHandler, KafkaRequest
from tidemark_broker.runtime.kafka.services import KafkaServices
from tidemark_broker.wire.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH_API
from tidemark_broker.wire.tables import Values, each_partition


def offset_for_leader_epoch_handler(services: KafkaServices) -> ApiHandler:
    def answer(topic: str, asked: Values) -> Values:
        found: Values = {"partition": asked["partition"], "error": ErrorCode.NONE}
        replica = services.partitions.find_leading(topic, asked["partition"])
        if isinstance(replica, ErrorCode):
            return found | {"error": replica}
        refused = epoch_refusal(LeaderEpoch(asked["current_leader_epoch"]), replica)
        if refused is not None:
            return found | {"error": refused}
        if asked["leader_epoch"] == replica.leader_epoch:
            end = replica.high_watermark  # clients read no further
            return found | {"leader_epoch": replica.leader_epoch, "end_offset": end}
        known = replica.log.end_offset_for(LeaderEpoch(asked["leader_epoch"]))
        if known is None:
            return found
        epoch, end_offset = known
        if epoch < replica.log.first_epoch:
            end_offset = max(end_offset, replica.log.log_start_offset)
        return found | {"leader_epoch": epoch, "end_offset": end_offset}

    def respond(request: KafkaRequest, asked: Values) -> Values:
        return {"topics": each_partition(asked["topics"], answer)}

    return services.answering.prompt_handler(OFFSET_FOR_LEADER_EPOCH_API, respond)
