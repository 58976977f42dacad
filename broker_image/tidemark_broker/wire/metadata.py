"""Metadata v0 to v13: brokers, topics, and who leads what.

From v10 on topics have ids and may be asked for by them (KIP-516); v13 answers with an error of
the whole request (KIP-1102).
"""

from tidemark_broker.wire.authorized_operations import NOT_ASKED
from tidemark_broker.wire.frames import METADATA
from tidemark_broker.wire.tables import (
    BOOLEAN,
    INT,
    SHORT,
    STRING,
    TOPIC_ID,
    ZERO_TOPIC_ID,
    Api,
    ArrayOf,
    Field,
    Struct,
)

METADATA_API = Api(
    api_key=METADATA,
    name="Metadata",
    min_version=0,
    max_version=13,
    first_flexible_version=9,
    request=Struct(
        Field(
            "topics",
            ArrayOf(
                Struct(
                    Field("topic_id", TOPIC_ID, since=10, default=ZERO_TOPIC_ID),
                    Field("topic", STRING, nullable_since=10),
                )
            ),
            nullable_since=1,
        ),
        Field("allow_auto_topic_creation", BOOLEAN, since=4, default=True),
        Field("include_cluster_authorized_operations", BOOLEAN, since=8, until=10, default=False),
        Field("include_topic_authorized_operations", BOOLEAN, since=8, default=False),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, since=3, default=0),
        Field(
            "brokers",
            ArrayOf(
                Struct(
                    Field("broker_id", INT),
                    Field("host", STRING),
                    Field("port", INT),
                    Field("rack", STRING, since=1, nullable_since=1),
                )
            ),
        ),
        Field("cluster_id", STRING, since=2, nullable_since=2),
        Field("controller_id", INT, since=1, default=-1),
        Field(
            "topics",
            ArrayOf(
                Struct(
                    Field("error", SHORT),
                    Field("topic", STRING, nullable_since=12),
                    Field("topic_id", TOPIC_ID, since=10, default=ZERO_TOPIC_ID),
                    Field("is_internal", BOOLEAN, since=1, default=False),
                    Field(
                        "partitions",
                        ArrayOf(
                            Struct(
                                Field("error", SHORT),
                                Field("partition", INT),
                                Field("leader", INT),
                                Field("leader_epoch", INT, since=7, default=-1),
                                Field("replicas", ArrayOf(INT)),
                                Field("in_sync_replicas", ArrayOf(INT)),
                                Field("offline_replicas", ArrayOf(INT), since=5, default=()),
                            )
                        ),
                    ),
                    Field("authorized_operations", INT, since=8, default=NOT_ASKED),
                )
            ),
        ),
        Field("cluster_authorized_operations", INT, since=8, until=10, default=NOT_ASKED),
        Field("error", SHORT, since=13, default=0),
    ),
)
