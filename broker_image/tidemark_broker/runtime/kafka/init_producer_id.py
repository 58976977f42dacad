"""InitProducerId. There are no transactions: a transactional id is refused for good, with the code
that every client gives up on (TRANSACTIONAL_ID_AUTHORIZATION_FAILED: nobody may use one here)."""

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.runtime.kafka.requests import ApiHandler, KafkaRequest
from tidemark_broker.runtime.kafka.services import KafkaServices
from tidemark_broker.wire.init_producer_id import INIT_PRODUCER_ID_API
from tidemark_broker.wire.tables import Values


def init_producer_id_handler(services: KafkaServices) -> ApiHandler:
    async def respond(request: KafkaRequest, asked: Values) -> Values:
        if asked["transactional_id"] is not None:
            return {"error": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        given = await services.partitions.init_producer_id(
            asked["producer_id"], asked["producer_epoch"]
        )
        return {
            "error": given.error,
            "producer_id": given.producer_id,
            "producer_epoch": given.producer_epoch,
        }

    return services.answering.table_handler(INIT_PRODUCER_ID_API, respond)
