"""Versions of requests that Kafka 4.2 to 4.4 brought, over a real socket."""

from pathlib import Path

import pytest
from tidemark_broker.wire.delete_groups import DELETE_GROUPS_API
from tidemark_protocol.error_codes import ErrorCode

from tests.unit.runtime.kafka_door import Door, with_door
from tests.unit.runtime.test_kafka_listeners import asked_at


@pytest.mark.parametrize(("version", "words"), [(2, None), (3, "there is no such group")])
def test_why_a_group_is_not_deleted_is_told_from_version_3_on(
    tmp_path: Path, version: int, words: str | None
) -> None:
    async def scenario(door: Door) -> None:
        door.push(has_groups=True)
        found = await asked_at(door.port, DELETE_GROUPS_API, version, {"groups": ["nobody"]})
        (group,) = found["groups"]
        assert (group["group_id"], group["error"]) == ("nobody", ErrorCode.GROUP_ID_NOT_FOUND)
        assert group["message"] == words

    with_door(tmp_path, scenario)
