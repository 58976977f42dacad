"""What DescribeProducers says of a replica, over a real socket."""

from pathlib import Path

from tidemark_broker.kafka_wire.messages.describe_producers import DESCRIBE_PRODUCERS_API
from tidemark_broker.kafka_wire.records.record_batch import NewRecord, build_batch
from tidemark_protocol.error_codes import ErrorCode

from tests.support.in_process_pool import TOPIC
from tests.support.kafka_test_client import Client, KafkaTestClient, produce, with_kafka_client
from tests.unit.broker.kafka.apis.test_advertised_listeners import requested_at


def test_producers_of_a_replica_are_told_with_their_last_batch(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push()
        client = await Client.connect(kafka_client)
        for producer_id, epoch, sequence in ((7, 2, 0), (7, 2, 3), (9, 0, 0)):
            records = [NewRecord(None, b"v")] * 3
            batch = build_batch(
                records,
                timestamp_ms=1000 + sequence,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            await client.ask(produce(batch))
        topics = [{"topic": TOPIC, "partitions": [0, 9]}, {"topic": "no name", "partitions": [0]}]
        found = await requested_at(kafka_client.port, DESCRIBE_PRODUCERS_API, 0, {"topics": topics})
        (known, absent), (invalid,) = (topic["partitions"] for topic in found["topics"])
        fields = ("producer_id", "producer_epoch", "last_sequence", "last_timestamp_ms")
        reported = [tuple(each[name] for name in fields) for each in known["producers"]]
        assert reported == [(7, 2, 5, 1003), (9, 0, 2, 1000)]
        assert absent["error"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert invalid["error"] == ErrorCode.INVALID_TOPIC_EXCEPTION

    with_kafka_client(tmp_path, scenario)


def test_of_a_partition_without_a_replica_here_no_producers_are_told(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(partition_count=2)
        topics = [{"topic": TOPIC, "partitions": [1]}]
        found = await requested_at(kafka_client.port, DESCRIBE_PRODUCERS_API, 0, {"topics": topics})
        (partition,) = found["topics"][0]["partitions"]
        assert partition["error"] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition["message"] == "broker 1 has no replica of it"

    with_kafka_client(tmp_path, scenario)
