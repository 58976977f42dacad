"""Define DescribeProducers v0 (KIP-664), the idempotent producers that a replica knows.

The producer's epoch is an int32 here. The fields of transactions hold no coordinator and no start.
"""

from tidemark_broker.kafka_wire.messages.frames import DESCRIBE_PRODUCERS
from tidemark_broker.kafka_wire.messages.schema import (
    ERROR_CODE,
    INT,
    LONG,
    STRING,
    Api,
    ArrayOf,
    Field,
    Struct,
    topic_array,
)

DESCRIBE_PRODUCERS_API = Api(
    api_key=DESCRIBE_PRODUCERS,
    name="DescribeProducers",
    min_version=0,
    max_version=0,
    first_flexible_version=0,
    request=Struct(
        Field(
            "topics",
            ArrayOf(Struct(Field("topic", STRING), Field("partitions", ArrayOf(INT)))),
        ),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field(
            "topics",
            topic_array(
                Field("partition", INT),
                Field("error", ERROR_CODE),
                Field("message", STRING, nullable_since=0),
                Field(
                    "producers",
                    ArrayOf(
                        Struct(
                            Field("producer_id", LONG),
                            Field("producer_epoch", INT),
                            Field("last_sequence", INT),
                            Field("last_timestamp_ms", LONG),
                            Field("coordinator_epoch", INT, default=-1),
                            Field("transaction_start_offset", LONG, default=-1),
                        )
                    ),
                    default=(),
                ),
            ),
        ),
    ),
)
