"""Answer Metadata, DescribeCluster and DescribeTopicPartitions.

Brokers are described with their addresses for the listener that the client came in by
(advertised_listeners.py). Any broker accepts the requests that Kafka sends to its controller; where
Kafka names a controller, the lowest live broker is named.
"""

from collections.abc import Iterable, Mapping

from tidemark_protocol.controller_messages import BrokerState
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import PartitionState, TopicState
from tidemark_protocol.topic_names import OFFSETS_TOPIC, topic_name_fault

from tidemark_broker.kafka.apis.advertised_listeners import described_brokers, with_reachable_leader
from tidemark_broker.kafka.apis.auto_create_topics import TopicAutoCreation
from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest
from tidemark_broker.kafka_wire.messages.authorized_operations import (
    NOT_REQUESTED,
    OF_CLUSTER,
    OF_TOPIC,
)
from tidemark_broker.kafka_wire.messages.metadata import (
    DESCRIBE_CLUSTER_API,
    DESCRIBE_TOPIC_PARTITIONS_API,
    ENDPOINTS_OF_BROKERS,
    METADATA_API,
)
from tidemark_broker.kafka_wire.messages.schema import ZERO_TOPIC_ID, Each, Values

MAX_PARTITIONS_OF_A_PAGE = 2000  # as Kafka's max.request.partition.size.limit


def cluster_handlers(context: HandlerContext) -> tuple[ApiHandler, ...]:
    view = ClusterView(context)
    handler = context.answering.sync_handler
    return (
        context.answering.async_handler(METADATA_API, view.metadata),
        handler(DESCRIBE_CLUSTER_API, view.describe_cluster),
        handler(DESCRIBE_TOPIC_PARTITIONS_API, view.describe_topic_partitions),
    )


class ClusterView:
    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self._metadata = context.partitions.metadata
        self._leader_changes = context.leader_changes
        self._creation = TopicAutoCreation(self._metadata, context.topic_admin)
        self._brokers: Mapping[BrokerId, BrokerState] = {}
        self._live: frozenset[BrokerId] = frozenset()  # of these

    async def metadata(self, request: KafkaRequest, requested: Values) -> Values:
        wants_all = requested["topics"] is None or (
            request.version == 0 and not requested["topics"]
        )
        # Each once, as Kafka: of one topic there may be much to tell.
        named = ((entry["topic"], entry["topic_id"]) for entry in requested["topics"] or ())
        wanted = list(dict.fromkeys(named))
        if self._context.creates_topics and requested["allow_auto_topic_creation"]:
            await self._creation.ensure(name for name, _ in wanted if name is not None)
        brokers = self._live_brokers()  # who asks for these alone may go on to ask each of them
        if wants_all or wanted:
            names = None if wants_all else [self._name_of(*entry) for entry in wanted]
            await self._leader_changes.verdicts(names)
            brokers = self._leader_changes.live_and_stopping()
        if wants_all:
            wanted = [(topic.topic, ZERO_TOPIC_ID) for topic in self._visible_topics()]

        def topic(entry: tuple[str | None, TopicId]) -> Values:
            found = self._requested_topic(*entry, request.listener)
            is_reported = (
                requested["include_topic_authorized_operations"] and found["topic"] is not None
            )
            return found | {"authorized_operations": _reported(OF_TOPIC, is_reported)}

        return {
            "brokers": described_brokers(self._metadata, brokers, request.listener),
            "cluster_id": self._context.cluster_id(),
            "controller_id": self._controller_id(),
            "topics": Each(wanted, topic),
            "cluster_authorized_operations": _reported(
                OF_CLUSTER, requested["include_cluster_authorized_operations"]
            ),
        }

    def describe_cluster(self, request: KafkaRequest, requested: Values) -> Values:
        if requested["endpoint_type"] != ENDPOINTS_OF_BROKERS:
            return {
                "error": ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                "error_message": "the controller has no Kafka endpoint: request type 1 (brokers)",
                "cluster_id": self._context.cluster_id(),
                "controller_id": NO_BROKER,
                "brokers": (),
            }
        brokers = self._live_brokers()
        if requested["include_fenced_brokers"]:
            brokers = sorted(self._metadata.brokers.values(), key=lambda known: known.broker_id)
        return {
            "error": ErrorCode.NONE,
            "cluster_id": self._context.cluster_id(),
            "controller_id": self._controller_id(),
            "brokers": described_brokers(self._metadata, brokers, request.listener),
            "cluster_authorized_operations": _reported(
                OF_CLUSTER, requested["include_cluster_authorized_operations"]
            ),
        }

    def describe_topic_partitions(self, request: KafkaRequest, requested: Values) -> Values:
        names = sorted({entry["topic"] for entry in requested["topics"]})
        if not names:
            names = [topic.topic for topic in self._visible_topics()]
        first = 0
        if (cursor := requested["cursor"]) is not None:
            names = [name for name in names if name >= cursor["topic"]]
            first = max(0, cursor["partition"]) if names[:1] == [cursor["topic"]] else 0
        room = max(1, min(requested["partition_limit"], MAX_PARTITIONS_OF_A_PAGE))
        topics: list[Values] = []
        next_cursor: Values | None = None
        for name in names:
            if room == 0:
                next_cursor = {"topic": name, "partition": 0}
                break
            found = self._requested_topic(name, ZERO_TOPIC_ID, request.listener)
            rest = tuple(found["partitions"])[first:]
            found["partitions"] = rest[:room]
            found["is_internal"] = found.get("is_internal", False)
            found["authorized_operations"] = OF_TOPIC  # unasked, as Kafka
            topics.append(found)
            if len(rest) > room:
                next_cursor = {"topic": name, "partition": rest[room]["partition"]}
                break
            room -= len(rest)
            first = 0
        return {"topics": topics, "next_cursor": next_cursor}

    # ---- inside

    def _visible_topics(self) -> list[TopicState]:
        known, retained = self._metadata.topics, self._metadata.retained
        return [known[name] for name in sorted(known) if known[name].topic_id not in retained]

    def _name_of(self, name: str | None, topic_id: TopicId) -> str:
        known = self._metadata.topics_by_id.get(topic_id)
        return name or ("" if known is None else known.topic)

    def _requested_topic(self, name: str | None, topic_id: TopicId, listener: str) -> Values:
        topic = (
            self._metadata.topics_by_id.get(topic_id)
            if name is None
            else self._metadata.topics.get(name)
        )
        if topic is not None and topic.topic_id not in self._metadata.retained:
            return self._topic(topic, listener)
        return {
            "error": _absence(name),
            "topic": name,
            "topic_id": topic_id,
            "partitions": (),
        }

    def _topic(self, topic: TopicState, listener: str) -> Values:
        # All of them, also those of which nothing is known now (S3): who sees fewer partitions
        # sends keys elsewhere.
        return {
            "error": ErrorCode.NONE,
            "topic": topic.topic,
            "topic_id": topic.topic_id,
            "is_internal": topic.topic == OFFSETS_TOPIC,
            "partitions": Each(
                range(topic.partition_count),
                lambda number: with_reachable_leader(
                    self._metadata, self._partition(topic.topic_id, number), listener
                ),
            ),
        }

    def _partition(self, topic_id: TopicId, number: int) -> Values:
        state = self._metadata.partitions.get((topic_id, number)) or _unknown(number)
        live = self._live_ids()
        leader = state.leader if state.leader in live else NO_BROKER
        eligible = tuple(member.broker_id for member in state.eligible_leaders)
        return {
            "error": ErrorCode.NONE if leader != NO_BROKER else ErrorCode.LEADER_NOT_AVAILABLE,
            "partition": state.partition,
            "leader": leader,
            "leader_epoch": state.leader_epoch,
            "replicas": state.replicas,
            "in_sync_replicas": tuple([member.broker_id for member in state.in_sync_replicas]),
            "eligible_leaders": eligible,
            "last_known_leaders": (),
            "offline_replicas": (
                ()
                if live.issuperset(state.replicas)
                else tuple([broker_id for broker_id in state.replicas if broker_id not in live])
            ),
        }

    def _live_ids(self) -> frozenset[BrokerId]:
        """Return the ids of live brokers, computed once for each change of the brokers."""
        brokers = self._metadata.brokers
        if brokers is not self._brokers:  # the mapping is replaced, never changed
            self._brokers = brokers
            self._live = frozenset(broker.broker_id for broker in self._live_brokers())
        return self._live

    def _live_brokers(self) -> list[BrokerState]:
        brokers: Iterable[BrokerState] = self._metadata.brokers.values()
        return sorted(
            (broker for broker in brokers if not broker.is_fenced),
            key=lambda broker: broker.broker_id,
        )

    def _controller_id(self) -> int:
        live = self._live_brokers()
        return live[0].broker_id if live else NO_BROKER


def _reported(operations: int, is_requested: bool) -> int:
    return operations if is_requested else NOT_REQUESTED


def _absence(name: str | None) -> ErrorCode:
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if topic_name_fault(name):  # else clients would wait for it to come
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _unknown(partition: int) -> PartitionState:
    return PartitionState(
        partition=partition,
        replicas=(),
        leader=NO_BROKER,
        leader_broker_epoch=BrokerEpoch(-1),
        leader_epoch=LeaderEpoch(-1),
        in_sync_replicas=(),
        eligible_leaders=(),
        partition_epoch=PartitionEpoch(-1),
        min_insync_replicas=0,
    )
