"""IncrementalAlterConfigs v0 and v1 (KIP-339)."""

from tidemark_broker.wire.config_fields import NAME, VALUE, alter_request, response
from tidemark_broker.wire.frames import INCREMENTAL_ALTER_CONFIGS
from tidemark_broker.wire.tables import BYTE, Api, Field

INCREMENTAL_ALTER_CONFIGS_API = Api(
    api_key=INCREMENTAL_ALTER_CONFIGS,
    name="IncrementalAlterConfigs",
    min_version=0,
    max_version=1,
    first_flexible_version=1,
    request=alter_request(NAME, Field("operation", BYTE), VALUE),
    response=response(),
)
