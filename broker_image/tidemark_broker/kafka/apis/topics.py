"""Answer CreateTopics, DeleteTopics and CreatePartitions.

Any broker accepts them and asks the controller.

The answer is sent when this broker's metadata shows the change, at the latest at the request's
timeout (REQUEST_TIMED_OUT; the change still happens). Names that occur twice and shapes that only
the wire format allows are rejected here; the controller checks the rest by the rules of Topic
manifests.
"""

from collections import Counter
from collections.abc import Iterable

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.topic_messages import (
    MAX_CHANGES,
    NewTopic,
    TopicResult,
    TopicsResponse,
    TopicToDelete,
    TopicToExpand,
)
from tidemark_protocol.topic_names import OFFSETS_TOPIC

from tidemark_broker.kafka.apis.described_configs import created_config
from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest
from tidemark_broker.kafka_wire.messages.schema import ZERO_TOPIC_ID, Values
from tidemark_broker.kafka_wire.messages.topics import (
    CREATE_PARTITIONS_API,
    CREATE_TOPICS_API,
    DELETE_TOPICS_API,
)
from tidemark_broker.metadata.topic_admin_client import Deadline

MAX_MESSAGE = 1_000  # characters


def topic_admin_handlers(context: HandlerContext) -> tuple[ApiHandler, ...]:
    admin = TopicAdmin(context)
    handler = context.answering.async_handler
    return (
        handler(CREATE_TOPICS_API, admin.create),
        handler(DELETE_TOPICS_API, admin.delete),
        handler(CREATE_PARTITIONS_API, admin.add_partitions),
    )


class TopicAdmin:
    def __init__(self, context: HandlerContext) -> None:
        self._metadata = context.partitions.metadata
        self._changes = context.topic_admin

    async def create(self, request: KafkaRequest, requested: Values) -> Values:
        rejected = reject_twice(entry["topic"] for entry in requested["topics"])
        news: list[NewTopic] = []
        for entry in requested["topics"]:
            new = _new_topic(entry)
            if isinstance(new, TopicResult):
                rejected.setdefault(new.topic, new)
            elif new.topic not in rejected:
                news.append(new)
        results = rejected | await self._created(requested, tuple(news))
        set_by_user = {new.topic: new.config for new in news}
        return {
            "topics": tuple(
                _created_response(result, set_by_user.get(topic, {}))
                for topic, result in _in_order(requested["topics"], results)
            )
        }

    async def _created(
        self, requested: Values, news: tuple[NewTopic, ...]
    ) -> dict[str, TopicResult]:
        if not news:
            return {}
        response = await self._changes.create(
            news, Deadline(requested["timeout_ms"]), validate_only=requested["validate_only"]
        )
        return by_topic(response, [new.topic for new in news])

    async def delete(self, request: KafkaRequest, requested: Values) -> Values:
        """Answer DeleteTopics, by name or, from v6 on, by id."""
        entries = requested["topics"] or tuple(
            {"topic": name, "topic_id": ZERO_TOPIC_ID} for name in requested["names"]
        )
        responses: list[Values] = []
        to_delete: dict[str, Values] = {}
        twice = reject_twice(entry["topic"] for entry in entries if entry["topic"] is not None)
        for entry in entries:
            named = self._named(entry)
            responses.append(named)
            if named["error"] is ErrorCode.NONE and named["topic"] in twice:
                named |= reported(twice[named["topic"]])
            elif named["error"] is ErrorCode.NONE:
                to_delete[named["topic"]] = named
        if to_delete:
            topics = tuple(
                TopicToDelete(name, each["asked_id"]) for name, each in to_delete.items()
            )
            response = await self._changes.delete(topics, Deadline(requested["timeout_ms"]))
            for name, result in by_topic(response, list(to_delete)).items():
                to_delete[name] |= reported(result)
        return {"topics": tuple(responses)}

    def _named(self, entry: Values) -> Values:
        """Return the topic that is named, or UNKNOWN_TOPIC_ID."""
        name, topic_id = entry["topic"], entry["topic_id"]
        response: Values = {"topic": name, "topic_id": topic_id, "error": ErrorCode.NONE}
        if name is not None:
            known = self._metadata.served_topic(name)
            found_id = known.topic_id if known is not None else ZERO_TOPIC_ID
            return response | {"topic_id": found_id, "asked_id": ""}
        found = self._metadata.topics_by_id.get(topic_id)
        if found is None or topic_id in self._metadata.retained:
            return response | {"error": ErrorCode.UNKNOWN_TOPIC_ID}
        return response | {"topic": found.topic, "asked_id": topic_id}

    async def add_partitions(self, request: KafkaRequest, requested: Values) -> Values:
        results = reject_twice(entry["topic"] for entry in requested["topics"])
        grown = tuple(
            TopicToExpand(
                entry["topic"],
                entry["partition_count"],
                tuple(_brokers(each["replicas"]) for each in entry["assignments"] or ()),
            )
            for entry in requested["topics"]
            if entry["topic"] not in results
        )
        if grown:
            response = await self._changes.add_partitions(
                grown, Deadline(requested["timeout_ms"]), validate_only=requested["validate_only"]
            )
            results |= by_topic(response, [each.topic for each in grown])
        return {
            "topics": tuple(
                {"topic": topic} | reported(result)
                for topic, result in _in_order(requested["topics"], results)
            )
        }


def _new_topic(entry: Values) -> NewTopic | TopicResult:
    topic = entry["topic"]
    if topic == OFFSETS_TOPIC:
        message = "brokers create it automatically for the first group"
        return TopicResult(topic, ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    assignments = {each["partition"]: _brokers(each["replicas"]) for each in entry["assignments"]}
    if sorted(assignments) != list(range(len(entry["assignments"]))):
        return TopicResult(
            topic,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "expected assignments of partitions 0 to n-1, each once",
        )
    config = {each["name"]: each["value"] for each in entry["configs"]}
    if None in config.values() or len(config) != len(entry["configs"]):
        return TopicResult(
            topic, ErrorCode.INVALID_CONFIG, "expected each config once, with a value"
        )
    return NewTopic(
        topic,
        entry["partition_count"],
        entry["replication_factor"],
        tuple(assignments[number] for number in sorted(assignments)),
        config,
    )


def _brokers(numbers: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers or ()))


def reject_twice(topics: Iterable[str]) -> dict[str, TopicResult]:
    """Return the errors of names that occur twice, or of all if there are too many topics."""
    counts = Counter(topics)
    if len(counts) > MAX_CHANGES:
        message = f"expected at most {MAX_CHANGES} topics in a request, found {len(counts)}"
        return {topic: TopicResult(topic, ErrorCode.INVALID_REQUEST, message) for topic in counts}
    return {
        topic: TopicResult(topic, ErrorCode.INVALID_REQUEST, "it appears twice in the request")
        for topic, count in counts.items()
        if count > 1
    }


def by_topic(response: TopicsResponse, topics: list[str]) -> dict[str, TopicResult]:
    """Return the controller's result for each topic.

    An error of the whole request applies to all.
    """
    if response.error is not ErrorCode.NONE:
        return {topic: TopicResult(topic, response.error, response.message) for topic in topics}
    unsaid = (
        "the controller's response lacks this topic: check whether the change was made, then retry"
    )
    responded = {result.topic: result for result in response.results}
    return {
        topic: responded.get(topic, TopicResult(topic, ErrorCode.UNKNOWN_SERVER_ERROR, unsaid))
        for topic in topics
    }


def reported(result: TopicResult) -> Values:
    """Return a result's fields.

    A message may quote names of the client's choice; their beginning is enough.
    """
    message = result.message[:MAX_MESSAGE] or None
    return {"error": result.error, "error_message": message}


def _in_order(
    entries: Iterable[Values], results: dict[str, TopicResult]
) -> Iterable[tuple[str, TopicResult]]:
    """Return each topic once with its result, in the order of the request."""
    return ((topic, results[topic]) for topic in dict.fromkeys(each["topic"] for each in entries))


def _created_response(result: TopicResult, set_by_user: dict[str, str]) -> Values:
    response = {"topic": result.topic} | reported(result)
    if result.error is not ErrorCode.NONE:
        return response | {"configs": ()}
    return response | {
        "topic_id": result.topic_id or ZERO_TOPIC_ID,
        "partition_count": result.partition_count,
        "replication_factor": result.replication_factor,
        "configs": created_config(result.config, set_by_user),
    }
