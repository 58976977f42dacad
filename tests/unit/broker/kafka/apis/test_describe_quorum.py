"""What DescribeQuorum says of the operator, over a real socket."""

from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.messages.describe_quorum import DESCRIBE_QUORUM_API
from tidemark_broker.metadata.controller_channel import Address
from tidemark_protocol.error_codes import ErrorCode

from tests.support.kafka_test_client import KafkaTestClient, with_kafka_client
from tests.unit.broker.kafka.apis.test_advertised_listeners import requested_at


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_operator_that_leads_is_told_as_a_quorum_of_one(tmp_path: Path, version: int) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push()
        kafka_client.context.controller_address = lambda: Address("operator.shop.svc", 9443)
        partitions = [{"partition": 0}, {"partition": 1}]
        topics = [{"topic": name, "partitions": partitions} for name in ("__cluster_metadata", "x")]
        found = await requested_at(
            kafka_client.port, DESCRIBE_QUORUM_API, version, {"topics": topics}
        )
        (quorum, second), others = (topic["partitions"] for topic in found["topics"])
        image = kafka_client.partitions.metadata.image_version
        assert (quorum["leader"], quorum["leader_epoch"]) == (3000, 1)
        reported = [
            (each["replica_id"], each["log_end_offset"])
            for each in (*quorum["voters"], *quorum["observers"])
        ]
        assert (quorum["high_watermark"], reported) == (image, [(3000, image), (1, image)])
        absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [each["error"] for each in (second, *others)] == [absent] * 3
        listener = {"name": "CONTROLLER", "host": "operator.shop.svc", "port": 9443}
        nodes = ({"node_id": 3000, "listeners": (listener,)},)
        assert tuple(found["nodes"]) == (nodes if version >= 2 else ())

    with_kafka_client(tmp_path, scenario)
