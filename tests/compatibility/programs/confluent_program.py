"""confluent-kafka (librdkafka)."""

import argparse
import contextlib
import time
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
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
    AccessRefused,
    emit,
    places,
    reported_to_end,
    run,
    seen,
    try_accesses,
    values,
)
from tests.support.access_programs import NO_ANSWER, NOT_LISTED, Cell

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


# ---- access


def access(requested: argparse.Namespace) -> None:
    try_accesses(lambda cell: Attempt(requested, cell).run())


class Attempt:
    """One access; what the client reports of its connections counts as much as what calls raise."""

    def __init__(self, requested: argparse.Namespace, cell: Cell) -> None:
        self._cell = cell
        self._reported: list[KafkaError] = []
        self._settings = {
            **settings(requested, **{"ssl.ca.location": requested.ca}),
            **credentials(cell),
            "log_level": 0,
            "error_cb": self._reported.append,
        }

    def run(self) -> None:
        works = {"produce": self._produce, "consume": self._consume, "group": self._consume}
        try:
            works.get(self._cell.verb, self._administrate)()
        except KafkaException as error:
            self._raise_authentication()
            raise refused(error.args[0]) from error

    def _raise_authentication(self) -> None:
        for error in self._reported:
            if error.code() == KafkaError._AUTHENTICATION:
                raise refused(error)

    def _until(self, is_done: Any) -> None:
        ends = time.monotonic() + self._cell.limit_s
        while not is_done():
            self._raise_authentication()
            if time.monotonic() > ends:
                raise AccessRefused(NO_ANSWER, "; ".join(map(str, self._reported)))

    def _produce(self) -> None:
        told: list[KafkaError | None] = []
        limit = {"message.timeout.ms": self._cell.limit_ms}
        producer = Producer({**self._settings, **limit, "acks": "all"})
        producer.produce(
            self._cell.topic, b"python", on_delivery=lambda error, _: told.append(error)
        )
        self._until(lambda: producer.poll(0.1) > 0 and bool(told))
        if told[0] is not None:
            raise KafkaException(told[0])

    def _consume(self) -> None:
        is_in_group = self._cell.verb == "group"
        group = {"group.id": self._cell.group, "auto.offset.reset": "earliest"}
        consumer = Consumer({**self._settings, **group, "enable.auto.commit": False})
        if is_in_group:
            consumer.subscribe([self._cell.topic])
        else:
            consumer.assign([TopicPartition(self._cell.topic, 0, 0)])

        def has_read() -> bool:
            message = consumer.poll(0.1)
            if message is None:
                return False
            if message.error() is not None:
                raise KafkaException(message.error())
            if is_in_group:
                consumer.commit(asynchronous=False)
            return True

        with contextlib.closing(consumer):
            self._until(has_read)

    def _administrate(self) -> None:
        cell = self._cell
        client = AdminClient({**self._settings, "socket.timeout.ms": cell.limit_ms})
        if cell.verb in ("list", "describe"):
            try:
                self._look(client)
            except KafkaException:
                client.poll(0.1)  # has the client report what it found wrong
                raise
            return
        (future,) = self._change(client).values()
        self._until(lambda: client.poll(0.1) >= 0 and future.done())
        future.result()

    def _look(self, client: AdminClient) -> None:
        cell = self._cell
        if cell.verb == "list":
            if cell.topic not in client.list_topics(timeout=cell.limit_s).topics:
                raise AccessRefused(NOT_LISTED)
            return
        found = client.list_topics(cell.topic, cell.limit_s).topics[cell.topic]
        if found.error is not None:
            raise KafkaException(found.error)

    def _change(self, client: AdminClient) -> Any:
        topic = self._cell.topic
        limit = {"request_timeout": self._cell.limit_s}
        if self._cell.verb == "create":
            return client.create_topics([NewTopic(topic, 1, 3)], **limit)
        if self._cell.verb == "delete":
            return client.delete_topics([topic], **limit)
        change = ConfigEntry(RETENTION, str(HOUR_MS), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("topic", topic, incremental_configs=[change])
        return client.incremental_alter_configs([resource], **limit)


def credentials(cell: Cell) -> dict[str, Any]:
    if not cell.mechanism:
        return {"security.protocol": "ssl"}
    protocol = {"security.protocol": "sasl_ssl", "sasl.mechanism": cell.mechanism}
    if cell.mechanism == "OAUTHBEARER":
        return {**protocol, "oauth_cb": lambda _: (cell.token, time.time() + 3600)}
    return {**protocol, "sasl.username": cell.user, "sasl.password": cell.password}


def refused(error: KafkaError) -> AccessRefused:
    """Name the broker's code; librdkafka's own are of the connection."""
    if error.code() == KafkaError._AUTHENTICATION:
        return AccessRefused("SASL_AUTHENTICATION_FAILED", error.str())
    is_own = error.code() < 0
    return AccessRefused(NO_ANSWER if is_own else error.name(), f"{error.name()}: {error.str()}")


if __name__ == "__main__":
    run(
        {
            "produce": produce,
            "consume": consume,
            "seek": seek,
            "group": group,
            "admin": admin,
            "access": access,
        }
    )
