"""What ListConfigResources lists, over a real socket."""

from pathlib import Path
from typing import Any

import pytest
from tidemark_broker.kafka_wire.messages.list_config_resources import LIST_CONFIG_RESOURCES_API
from tidemark_protocol.error_codes import ErrorCode

from tests.support.in_process_pool import TOPIC
from tests.support.kafka_test_client import KafkaTestClient, with_kafka_client
from tests.unit.broker.kafka.apis.test_advertised_listeners import requested_at


@pytest.mark.parametrize(
    ("version", "kinds", "reported"),
    [
        (0, (), []),
        (1, (), [("1", 4), (TOPIC, 2)]),
        (1, (2,), [(TOPIC, 2)]),
        (1, (4, 8, 16, 32), [("1", 4)]),
        (1, (2, 3), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_what_has_configs_is_listed_by_its_kind(
    tmp_path: Path, version: int, kinds: tuple[int, ...], reported: Any
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(retained=("gone",))
        requested = {"resource_types": kinds}
        found = await requested_at(kafka_client.port, LIST_CONFIG_RESOURCES_API, version, requested)
        listed = [(each["resource"], each["resource_type"]) for each in found["resources"]]
        assert (found["error"] or listed) == reported

    with_kafka_client(tmp_path, scenario)
