"""DescribeCluster v0 to v2 (KIP-700, KIP-919, KIP-1073)."""

from tidemark_broker.wire.authorized_operations import NOT_ASKED
from tidemark_broker.wire.frames import DESCRIBE_CLUSTER
from tidemark_broker.wire.tables import (
    BOOLEAN,
    BYTE,
    INT,
    SHORT,
    STRING,
    Api,
    ArrayOf,
    Field,
    Struct,
)

ENDPOINTS_OF_BROKERS = 1

DESCRIBE_CLUSTER_API = Api(
    api_key=DESCRIBE_CLUSTER,
    name="DescribeCluster",
    min_version=0,
    max_version=2,
    first_flexible_version=0,
    request=Struct(
        Field("include_cluster_authorized_operations", BOOLEAN),
        Field("endpoint_type", BYTE, since=1, default=ENDPOINTS_OF_BROKERS),
        Field("include_fenced_brokers", BOOLEAN, since=2, default=False),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field("error", SHORT),
        Field("error_message", STRING, nullable_since=0),
        Field("endpoint_type", BYTE, since=1, default=ENDPOINTS_OF_BROKERS),
        Field("cluster_id", STRING),
        Field("controller_id", INT),
        Field(
            "brokers",
            ArrayOf(
                Struct(
                    Field("broker_id", INT),
                    Field("host", STRING),
                    Field("port", INT),
                    Field("rack", STRING, nullable_since=0),
                    Field("is_fenced", BOOLEAN, since=2, default=False),
                )
            ),
        ),
        Field("cluster_authorized_operations", INT, default=NOT_ASKED),
    ),
)
