"""confluent-kafka (librdkafka)."""

import argparse
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from tests.compatibility.programs.command_line import (
    HOUR_MS,
    RETENTION,
    emit,
    places,
    reported_to_end,
    run,
    seen,
    values,
)

LIMIT_SECONDS = 120.0


def settings(requested: argparse.Namespace, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": requested.bootstrap, "log_level": 3, **more}


def produce(requested: argparse.Namespace) -> None:
    wanted = {"acks": "all", "linger.ms": 5, "compression.type": requested.codec}
    producer = Producer(
        settings(requested, **wanted, **{"enable.idempotence": requested.idempotent})
    )
    for value in values(requested):
        producer.produce(requested.topic, value=value, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(LIMIT_SECONDS) == 0


def on_delivery(error: KafkaError | None, message: Message) -> None:
    value = message.value().decode()
    if error is not None:
        emit("producer_send_error", value=value, message=str(error))
        return
    place = {"partition": message.partition(), "offset": message.offset()}
    emit("producer_send_success", value=value, **place)


def record_data(message: Message) -> None:
    place = {"partition": message.partition(), "offset": message.offset()}
    emit("record_data", topic=message.topic(), value=message.value().decode(), **place)


def consume(requested: argparse.Namespace) -> None:
    unused = {"group.id": "none", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer(settings(requested, **unused))
    found = consumer.list_topics(requested.topic, LIMIT_SECONDS).topics[requested.topic].partitions
    consumer.assign([TopicPartition(requested.topic, number, 0) for number in found])
    at_end: set[int] = set()
    while len(at_end) < len(found):
        message = consumer.poll(LIMIT_SECONDS)
        assert message is not None, "nothing came"
        if message.error() is None:
            record_data(message)
            continue
        assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
        at_end.add(message.partition())
    consumer.close()


def seek(requested: argparse.Namespace) -> None:
    unused = {"group.id": "none", "enable.auto.commit": False}
    consumer = Consumer(settings(requested, **unused))
    wanted = TopicPartition(requested.topic, 0, requested.timestamp)
    (place,) = consumer.offsets_for_times([wanted], timeout=LIMIT_SECONDS)
    consumer.assign([place])
    message = consumer.poll(LIMIT_SECONDS)
    assert message is not None and message.error() is None
    record_data(message)
    consumer.close()


def group(requested: argparse.Namespace) -> None:
    reported = reported_to_end()
    chosen = {"group.id": requested.group, "auto.offset.reset": "earliest"}
    quick = {"enable.auto.commit": False, "session.timeout.ms": 6000}
    cooperative = {"partition.assignment.strategy": "cooperative-sticky"}
    consumer = Consumer(settings(requested, **chosen, **quick, **cooperative))

    def tell(name: str) -> Any:
        def on_change(_: Consumer, changed: list[TopicPartition]) -> None:
            emit(name, partitions=places(requested.topic, [place.partition for place in changed]))

        return on_change

    consumer.subscribe(
        [requested.topic],
        on_assign=tell("partitions_assigned"),
        on_revoke=tell("partitions_revoked"),
        on_lost=tell("partitions_revoked"),
    )
    while not reported.is_set():
        messages = [found for found in consumer.consume(500, 0.1) if found.error() is None]
        if not messages:
            continue
        for message in messages:
            record_data(message)
        try:
            committed = consumer.commit(asynchronous=False)
        except Exception as error:
            emit("offsets_committed", success=False, error=str(error))
            continue
        offsets = {place.partition: place.offset for place in committed}
        emit("offsets_committed", success=True, offsets=places(requested.topic, offsets))
    consumer.close()


def admin(requested: argparse.Namespace) -> None:
    client = AdminClient(settings(requested))
    new = NewTopic(requested.topic, 2, 3, config={RETENTION: str(HOUR_MS)})
    finish(client.create_topics([new]))
    notify_topic(client, requested.topic, 2, 1)
    finish(client.create_partitions([NewPartitions(requested.topic, 4)]))
    change = ConfigEntry(RETENTION, str(2 * HOUR_MS), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", requested.topic, incremental_configs=[change])
    finish(client.incremental_alter_configs([resource]))
    notify_topic(client, requested.topic, 4, 2)
    finish(client.delete_topics([requested.topic]))
    emit("topic_deleted")


def finish(requested_for: Any) -> Any:
    """The one answer of a request for one thing."""
    (future,) = requested_for.values()
    return future.result(LIMIT_SECONDS)


def notify_topic(client: AdminClient, topic: str, partitions: int, hours: int) -> None:
    def count() -> int:
        return len(client.list_topics(topic, LIMIT_SECONDS).topics[topic].partitions)

    def retention_ms() -> int:
        configs = finish(client.describe_configs([ConfigResource("topic", topic)]))
        return int(configs[RETENTION].value)

    emit("partition_count", count=seen(count, partitions))
    emit("retention_ms", value=seen(retention_ms, hours * HOUR_MS))


if __name__ == "__main__":
    run({"produce": produce, "consume": consume, "seek": seek, "group": group, "admin": admin})
