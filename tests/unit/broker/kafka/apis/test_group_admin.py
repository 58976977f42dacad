"""What DeleteGroups says of a group, over a real socket."""

from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.messages.group_admin import DELETE_GROUPS_API
from tidemark_protocol.error_codes import ErrorCode

from tests.support.kafka_test_client import KafkaTestClient, with_kafka_client
from tests.unit.broker.kafka.apis.test_advertised_listeners import requested_at


@pytest.mark.parametrize(("version", "words"), [(2, None), (3, "the group does not exist")])
def test_why_a_group_is_not_deleted_is_told_from_version_3_on(
    tmp_path: Path, version: int, words: str | None
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(has_groups=True)
        found = await requested_at(
            kafka_client.port, DELETE_GROUPS_API, version, {"groups": ["nobody"]}
        )
        (group,) = found["groups"]
        assert (group["group_id"], group["error"]) == ("nobody", ErrorCode.GROUP_ID_NOT_FOUND)
        assert group["message"] == words

    with_kafka_client(tmp_path, scenario)
