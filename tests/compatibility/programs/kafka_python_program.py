"""kafka-python."""

import argparse
from typing import Any

from kafka import (
    ConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    TopicPartition,
)
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import KafkaError

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


def produce(requested: argparse.Namespace) -> None:
    producer = KafkaProducer(
        bootstrap_servers=requested.bootstrap.split(","),
        acks="all",
        linger_ms=5,
        compression_type=None if requested.codec == "none" else requested.codec,
        enable_idempotence=requested.idempotent,
    )
    for value in values(requested):
        future = producer.send(requested.topic, value.encode())
        future.add_callback(on_success, value)
        future.add_errback(on_error, value)
    producer.flush()
    producer.close()


def on_success(value: str, found: Any) -> None:
    emit("producer_send_success", value=value, partition=found.partition, offset=found.offset)


def on_error(value: str, error: BaseException) -> None:
    emit("producer_send_error", value=value, message=repr(error))


def record_data(record: Any) -> None:
    place = {"partition": record.partition, "offset": record.offset}
    emit("record_data", topic=record.topic, value=record.value.decode(), **place)


def consumer_of(requested: argparse.Namespace, **more: Any) -> KafkaConsumer:
    chosen = {"enable_auto_commit": False, "auto_offset_reset": "earliest", **more}
    return KafkaConsumer(bootstrap_servers=requested.bootstrap.split(","), **chosen)


def consume(requested: argparse.Namespace) -> None:
    consumer = consumer_of(requested)
    numbers = sorted(consumer.partitions_for_topic(requested.topic))
    wanted = [TopicPartition(requested.topic, number) for number in numbers]
    consumer.assign(wanted)
    consumer.seek_to_beginning()
    ends = consumer.end_offsets(wanted)
    while any(consumer.position(place) < end for place, end in ends.items()):
        for records in consumer.poll(timeout_ms=1000).values():
            for record in records:
                record_data(record)
    consumer.close()


def seek(requested: argparse.Namespace) -> None:
    consumer = consumer_of(requested)
    place = TopicPartition(requested.topic, 0)
    consumer.assign([place])
    consumer.seek(place, consumer.offsets_for_times({place: requested.timestamp})[place].offset)
    found = consumer.poll(timeout_ms=60_000, max_records=1)
    record_data(found[place][0])
    consumer.close()


class Telling(ConsumerRebalanceListener):
    def __init__(self, topic: str) -> None:
        self._topic = topic

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._emit("partitions_assigned", assigned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._emit("partitions_revoked", revoked)

    def _emit(self, name: str, changed: Any) -> None:
        numbers = sorted(place.partition for place in changed)
        emit(name, partitions=places(self._topic, numbers))


def group(requested: argparse.Namespace) -> None:
    reported = reported_to_end()
    consumer = consumer_of(requested, group_id=requested.group, session_timeout_ms=6000)
    consumer.subscribe([requested.topic], listener=Telling(requested.topic))
    while not reported.is_set():
        found = consumer.poll(timeout_ms=100)
        if not found:
            continue
        for records in found.values():
            for record in records:
                record_data(record)
        try:
            consumer.commit()
        except KafkaError as error:
            emit("offsets_committed", success=False, error=repr(error))
            continue
        offsets = {place.partition: records[-1].offset + 1 for place, records in found.items()}
        emit("offsets_committed", success=True, offsets=places(requested.topic, offsets))
    consumer.close()


def admin(requested: argparse.Namespace) -> None:
    client = KafkaAdminClient(bootstrap_servers=requested.bootstrap.split(","))
    client.create_topics([NewTopic(requested.topic, 2, 3, topic_configs={RETENTION: str(HOUR_MS)})])
    notify_topic(client, requested.topic, 2, 1)
    client.create_partitions({requested.topic: NewPartitions(4)})
    configs = {RETENTION: str(2 * HOUR_MS)}
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, requested.topic, configs)])
    notify_topic(client, requested.topic, 4, 2)
    client.delete_topics([requested.topic])
    emit("topic_deleted")
    client.close()


def notify_topic(client: KafkaAdminClient, topic: str, partitions: int, hours: int) -> None:
    def count() -> int:
        (found,) = client.describe_topics([topic])
        return len(found["partitions"])

    def retention_ms() -> int:
        found = client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        return int(found["topic"][topic][RETENTION]["value"])

    emit("partition_count", count=seen(count, partitions))
    emit("retention_ms", value=seen(retention_ms, hours * HOUR_MS))


if __name__ == "__main__":
    run({"produce": produce, "consume": consume, "seek": seek, "group": group, "admin": admin})
