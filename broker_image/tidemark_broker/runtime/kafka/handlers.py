"""The table of handlers: what is in it is what ApiVersions tells."""

from tidemark_broker.runtime.kafka.api_versions import api_versions_handler
from tidemark_broker.runtime.kafka.cluster import cluster_handlers
from tidemark_broker.runtime.kafka.config_admin import config_admin_handlers
from tidemark_broker.runtime.kafka.describe_producers import describe_producers_handler
from tidemark_broker.runtime.kafka.describe_quorum import describe_quorum_handler
from tidemark_broker.runtime.kafka.fetch import fetch_handler
from tidemark_broker.runtime.kafka.group_admin import group_admin_handlers
from tidemark_broker.runtime.kafka.group_members import group_member_handlers
from tidemark_broker.runtime.kafka.group_offsets import group_offset_handlers
from tidemark_broker.runtime.kafka.init_producer_id import init_producer_id_handler
from tidemark_broker.runtime.kafka.list_config_resources import list_config_resources_handler
from tidemark_broker.runtime.kafka.list_offsets import list_offsets_handler
from tidemark_broker.runtime.kafka.log_admin import log_admin_handlers
from tidemark_broker.runtime.kafka.offset_for_leader_epoch import offset_for_leader_epoch_handler
from tidemark_broker.runtime.kafka.partition_admin import partition_admin_handlers
from tidemark_broker.runtime.kafka.produce import produce_handler
from tidemark_broker.runtime.kafka.quota_admin import quota_admin_handlers
from tidemark_broker.runtime.kafka.services import KafkaServices
from tidemark_broker.runtime.kafka.topic_admin import topic_admin_handlers


def add_handlers(services: KafkaServices) -> None:
    services.add(
        produce_handler(services),
        fetch_handler(services),
        list_offsets_handler(services),
        api_versions_handler(services),
        init_producer_id_handler(services),
        offset_for_leader_epoch_handler(services),
        describe_producers_handler(services),
        list_config_resources_handler(services),
        describe_quorum_handler(services),
        *cluster_handlers(services),
        *topic_admin_handlers(services),
        *config_admin_handlers(services),
        *partition_admin_handlers(services),
        *log_admin_handlers(services),
        *quota_admin_handlers(services),
        *group_member_handlers(services.groups, services.answering, services.new_uuid),
        *group_offset_handlers(services.groups, services.answering, services.partitions.metadata),
        *group_admin_handlers(services.groups, services.answering, services.partitions.metadata),
    )
