"""A controller made of one function, for parts of a broker that ask it on behalf of clients."""

from tidemark_broker.metadata.metadata_cache import MetadataCache
from tidemark_broker.metadata.topic_admin_client import AskForTopics, TopicAdminClient
from tidemark_protocol.controller_messages import AllocateProducerIdsResponse
from tidemark_protocol.ids import BrokerEpoch, BrokerId
from tidemark_protocol.topic_messages import RequestingBroker, TopicsRequest, TopicsResponse


async def not_connected(
    path: str, request: TopicsRequest, timeout_ms: int
) -> TopicsResponse | None:
    return None


async def no_producer_ids() -> AllocateProducerIdsResponse | None:
    return None


class FakeController:
    """Gives no answer until a test says how it answers."""

    def __init__(self) -> None:
        self.ask: AskForTopics = not_connected

    def topic_admin(self, metadata: MetadataCache) -> TopicAdminClient:
        return TopicAdminClient(
            metadata,
            ask=lambda *requested: self.ask(*requested),
            requesting=lambda: RequestingBroker("", BrokerId(-1), BrokerEpoch(-1)),
        )
