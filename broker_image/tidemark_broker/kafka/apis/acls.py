"""Answer DescribeAcls, CreateAcls and DeleteAcls at listeners without authentication.

No access is checked there. At the others the rules of acl_rules.py answer.
"""

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest
from tidemark_broker.kafka_wire.messages.acls import (
    CREATE_ACLS_API,
    DELETE_ACLS_API,
    DESCRIBE_ACLS_API,
)
from tidemark_broker.kafka_wire.messages.schema import Values

_NOT_CHECKED = "no access is checked at this listener: it has no authentication"


def acl_handlers(context: HandlerContext) -> tuple[ApiHandler, ...]:
    error = {"error": ErrorCode.SECURITY_DISABLED, "error_message": _NOT_CHECKED}

    def describe(request: KafkaRequest, requested: Values) -> Values:
        return error

    def create(request: KafkaRequest, requested: Values) -> Values:
        return {"results": (error,) * len(requested["creations"])}

    def delete(request: KafkaRequest, requested: Values) -> Values:
        return {"results": (error,) * len(requested["filters"])}

    handler = context.answering.sync_handler
    return (
        handler(DESCRIBE_ACLS_API, describe),
        handler(CREATE_ACLS_API, create),
        handler(DELETE_ACLS_API, delete),
    )
