"""What a broker says of its log directory, over a real socket."""

from pathlib import Path

import pytest
from tidemark_broker.kafka.apis.logs import LogAdmin
from tidemark_broker.kafka_wire.messages.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS_API
from tidemark_protocol.error_codes import ErrorCode

from tests.support.in_process_pool import TOPIC
from tests.support.kafka_test_client import KafkaTestClient, with_kafka_client
from tests.unit.broker.kafka.apis.test_advertised_listeners import requested_at


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_moves_to_no_other_directory_of_its_broker(tmp_path: Path, version: int) -> None:
    """A broker has one: a replica is there already, or it is asked for where nothing is."""

    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.context.log_directory = "/data"
        admin = LogAdmin(kafka_client.context)  # it was told no directory when the door was made
        handler = kafka_client.context.answering.sync_handler(
            ALTER_REPLICA_LOG_DIRS_API, admin.alter_log_dirs
        )
        kafka_client.context.add(handler)
        kafka_client.push()
        topics = [{"topic": TOPIC, "partitions": [0, 7]}]
        directories = [{"path": path, "topics": topics} for path in ("/data", "/elsewhere")]
        requested = {"directories": directories}
        found = await requested_at(
            kafka_client.port, ALTER_REPLICA_LOG_DIRS_API, version, requested
        )
        (topic,) = found["topics"]
        reported = [(each["partition"], each["error"]) for each in topic["partitions"]]
        absent = (7, ErrorCode.REPLICA_NOT_AVAILABLE)
        missing = [(number, ErrorCode.LOG_DIR_NOT_FOUND) for number in (0, 7)]
        assert reported == [(0, ErrorCode.NONE), absent, *missing]

    with_kafka_client(tmp_path, scenario)
