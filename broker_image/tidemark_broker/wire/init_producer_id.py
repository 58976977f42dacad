"""InitProducerId v0 to v5: an id whose retries are recognised; from v3 on the next epoch of one
(KIP-360)."""

from tidemark_broker.wire.frames import INIT_PRODUCER_ID
from tidemark_broker.wire.tables import INT, LONG, SHORT, STRING, Api, Field, Struct

INIT_PRODUCER_ID_API = Api(
    api_key=INIT_PRODUCER_ID,
    name="InitProducerId",
    min_version=0,
    max_version=5,
    first_flexible_version=2,
    request=Struct(
        Field("transactional_id", STRING, nullable_since=0),
        Field("transaction_timeout_ms", INT),
        Field("producer_id", LONG, since=3, default=-1),
        Field("producer_epoch", SHORT, since=3, default=-1),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field("error", SHORT),
        Field("producer_id", LONG, default=-1),
        Field("producer_epoch", SHORT, default=-1),
    ),
)
