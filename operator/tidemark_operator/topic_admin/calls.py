"""What brokers may ask of `TopicAdmin`, by path: further calls of the controller's API."""

from tidemark_protocol.topic_messages import (
    ADD_PARTITIONS_PATH,
    ALTER_CONFIGS_PATH,
    APPLIED_VERSION_PATH,
    CREATE_TOPICS_PATH,
    DELETE_TOPICS_PATH,
    ELECT_LEADERS_PATH,
    REASSIGN_PARTITIONS_PATH,
    AddPartitionsRequest,
    AlterConfigsRequest,
    AppliedVersionRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ReassignPartitionsRequest,
)

from tidemark_operator.controller.api import BrokerCall, broker_call
from tidemark_operator.topic_admin.service import TopicAdmin


def topic_calls(admin: TopicAdmin) -> dict[str, BrokerCall]:
    return {
        APPLIED_VERSION_PATH: broker_call(AppliedVersionRequest, admin.applied_version),
        CREATE_TOPICS_PATH: broker_call(CreateTopicsRequest, admin.create_topics),
        DELETE_TOPICS_PATH: broker_call(DeleteTopicsRequest, admin.delete_topics),
        ADD_PARTITIONS_PATH: broker_call(AddPartitionsRequest, admin.add_partitions),
        ALTER_CONFIGS_PATH: broker_call(AlterConfigsRequest, admin.alter_configs),
        REASSIGN_PARTITIONS_PATH: broker_call(ReassignPartitionsRequest, admin.reassign_partitions),
        ELECT_LEADERS_PATH: broker_call(ElectLeadersRequest, admin.elect_leaders),
    }
