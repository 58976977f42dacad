"""Where HTTP clients find brokers: at the address of the listener that they came in by.

As for the Kafka port (runtime/kafka/addresses.py): the listener without a name is the one in the
cluster; named ones are for clients elsewhere, and the operator tells their addresses. Brokers
never use these among themselves.
"""

from tidemark_protocol.ids import BrokerId

from tidemark_broker.runtime.kafka.addresses import INTERNAL
from tidemark_broker.runtime.metadata import MetadataCache


def client_url(metadata: MetadataCache, broker_id: BrokerId, listener: str) -> str:
    """No end slash; "": clients of that listener cannot reach the broker (now)."""
    if listener == INTERNAL:
        broker = metadata.brokers.get(broker_id)
        return "" if broker is None else broker.endpoints.advertised_http_url
    known = metadata.addresses.get((listener, broker_id))
    if known is None:
        return ""
    host = f"[{known.host}]" if ":" in known.host else known.host
    return f"http://{host}:{known.port}"
