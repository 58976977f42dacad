"""aiokafka."""

import argparse
import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from tests.compatibility.programs.command_line import (
    HOUR_MS,
    LOOK_SECONDS,
    LOOKS,
    RETENTION,
    Work,
    emit,
    places,
    run,
)


async def produce(requested: argparse.Namespace) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=requested.bootstrap,
        acks="all",
        linger_ms=5,
        compression_type=None if requested.codec == "none" else requested.codec,
        enable_idempotence=requested.idempotent,
    )
    await producer.start()
    loop = asyncio.get_running_loop()
    began = loop.time()
    sent = []
    for number in range(requested.count):
        if requested.rate:
            await asyncio.sleep(max(0.0, began + number / requested.rate - loop.time()))
        value = f"{requested.prefix}.{number}"
        future = await producer.send(requested.topic, value.encode())
        future.add_done_callback(telling(value))
        sent.append(future)
    await asyncio.gather(*sent, return_exceptions=True)
    await producer.stop()


def telling(value: str) -> Callable[[Any], None]:
    def on_done(future: Any) -> None:
        if future.exception() is not None:
            emit("producer_send_error", value=value, message=repr(future.exception()))
            return
        found = future.result()
        place = {"partition": found.partition, "offset": found.offset}
        emit("producer_send_success", value=value, **place)

    return on_done


def record_data(record: Any) -> None:
    place = {"partition": record.partition, "offset": record.offset}
    emit("record_data", topic=record.topic, value=record.value.decode(), **place)


def consumer_of(requested: argparse.Namespace, **more: Any) -> AIOKafkaConsumer:
    chosen = {"enable_auto_commit": False, "auto_offset_reset": "earliest", **more}
    # It does not look for another leader when a reset of its position is answered with
    # NOT_LEADER_OR_FOLLOWER; at the default age it would ask the former one for 5 minutes.
    chosen["metadata_max_age_ms"] = 1000
    return AIOKafkaConsumer(bootstrap_servers=requested.bootstrap, **chosen)


async def consume(requested: argparse.Namespace) -> None:
    consumer = consumer_of(requested)
    await consumer.start()
    await consumer._client.force_metadata_update()  # partitions_for_topic alone asks nobody
    cluster = await consumer._client.fetch_all_metadata()
    wanted = [
        TopicPartition(requested.topic, n) for n in cluster.partitions_for_topic(requested.topic)
    ]
    consumer.assign(wanted)
    await consumer.seek_to_beginning(*wanted)
    ends = await consumer.end_offsets(wanted)
    for place, end in ends.items():
        while await consumer.position(place) < end:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    record_data(record)
    await consumer.stop()


async def seek(requested: argparse.Namespace) -> None:
    consumer = consumer_of(requested)
    await consumer.start()
    place = TopicPartition(requested.topic, 0)
    consumer.assign([place])
    found = await consumer.offsets_for_times({place: requested.timestamp})
    consumer.seek(place, found[place].offset)
    record_data(await consumer.getone(place))
    await consumer.stop()


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


async def group(requested: argparse.Namespace) -> None:
    reported = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, reported.set)
    consumer = consumer_of(requested, group_id=requested.group, session_timeout_ms=6000)
    consumer.subscribe([requested.topic], listener=Telling(requested.topic))
    await consumer.start()
    while not reported.is_set():
        found = await consumer.getmany(timeout_ms=100)
        if not found:
            continue
        for records in found.values():
            for record in records:
                record_data(record)
        offsets = {place: records[-1].offset + 1 for place, records in found.items()}
        try:
            await consumer.commit(offsets)
        except KafkaError as error:
            emit("offsets_committed", success=False, error=repr(error))
            continue
        by_number = {place.partition: offset for place, offset in offsets.items()}
        emit("offsets_committed", success=True, offsets=places(requested.topic, by_number))
    await consumer.stop()


async def admin(requested: argparse.Namespace) -> None:
    client = AIOKafkaAdminClient(bootstrap_servers=requested.bootstrap)
    await client.start()
    new = NewTopic(requested.topic, 2, 3, topic_configs={RETENTION: str(HOUR_MS)})
    check((await client.create_topics([new])).topic_errors)
    await notify_topic(client, requested.topic, 2, 1)
    check((await client.create_partitions({requested.topic: NewPartitions(4)})).topic_errors)
    configs = {RETENTION: str(2 * HOUR_MS)}
    resource = ConfigResource(ConfigResourceType.TOPIC, requested.topic, configs)
    for response in await client.alter_configs([resource]):
        assert all(one[0] == 0 for one in response.resources), response
    await notify_topic(client, requested.topic, 4, 2)
    check((await client.delete_topics([requested.topic])).topic_error_codes)
    emit("topic_deleted")
    await client.close()


def check(errors: Any) -> None:
    for _, code, *_ in errors:
        if code:
            raise for_code(code)


async def notify_topic(
    client: AIOKafkaAdminClient, topic: str, partitions: int, hours: int
) -> None:
    found = (-1, -1)
    for _ in range(LOOKS):
        with contextlib.suppress(Exception):
            found = await described(client, topic)
        if found == (partitions, hours * HOUR_MS):
            break
        await asyncio.sleep(LOOK_SECONDS)
    emit("partition_count", count=found[0])
    emit("retention_ms", value=found[1])


async def described(client: AIOKafkaAdminClient, topic: str) -> tuple[int, int]:
    (found,) = await client.describe_topics([topic])
    (response,) = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    ((code, *_, entries),) = response.resources
    assert code == 0, response
    return len(found["partitions"]), int({entry[0]: entry[1] for entry in entries}[RETENTION])


def in_a_loop(work: Callable[[argparse.Namespace], Coroutine[Any, Any, None]]) -> Work:
    return lambda requested: asyncio.run(work(requested))


if __name__ == "__main__":
    works = {
        "produce": produce,
        "consume": consume,
        "seek": seek,
        "group": group,
        "admin": admin,
    }
    run({name: in_a_loop(work) for name, work in works.items()})
