"""AlterConfigs v0 to v2: all configs of a resource at once (older than KIP-339)."""

from tidemark_broker.wire.config_fields import NAME, VALUE, alter_request, response
from tidemark_broker.wire.frames import ALTER_CONFIGS
from tidemark_broker.wire.tables import Api

ALTER_CONFIGS_API = Api(
    api_key=ALTER_CONFIGS,
    name="AlterConfigs",
    min_version=0,
    max_version=2,
    first_flexible_version=2,
    request=alter_request(NAME, VALUE),
    response=response(),
)
