"""What brokers may ask of `TopicAdmin`, by path: further calls of the controller's API."""

from tidemark_protocol.topic_messages import CREATE_TOPICS_PATH, CreateTopicsRequest

from tidemark_operator.controller.api import BrokerCall, broker_call
from tidemark_operator.topic_admin.service import TopicAdmin


def topic_calls(admin: TopicAdmin) -> dict[str, BrokerCall]:
    return {
        CREATE_TOPICS_PATH: broker_call(CreateTopicsRequest, admin.create_topics),
    }
