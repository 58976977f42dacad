"""What the clients and tools of Kafka 4.4 may ask besides, over a real socket."""

from pathlib import Path

import pytest
from tidemark_broker.runtime.kafka.log_admin import LogAdmin
from tidemark_broker.wire.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS_API
from tidemark_broker.wire.delete_groups import DELETE_GROUPS_API
from tidemark_protocol.error_codes import ErrorCode

from tests.unit.runtime.in_process_pool import TOPIC
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


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_moves_to_no_other_directory_of_its_broker(tmp_path: Path, version: int) -> None:
    """A broker has one: a replica is there already, or it is asked for where nothing is."""

    async def scenario(door: Door) -> None:
        door.services.log_directory = "/data"
        admin = LogAdmin(door.services)  # it was told no directory when the door was made
        handler = door.services.answering.prompt_handler(
            ALTER_REPLICA_LOG_DIRS_API, admin.alter_log_dirs
        )
        door.services.add(handler)
        door.push()
        topics = [{"topic": TOPIC, "partitions": [0, 7]}]
        directories = [{"path": path, "topics": topics} for path in ("/data", "/elsewhere")]
        asked = {"directories": directories}
        found = await asked_at(door.port, ALTER_REPLICA_LOG_DIRS_API, version, asked)
        (topic,) = found["topics"]
        told = [(each["partition"], each["error"]) for each in topic["partitions"]]
        absent = (7, ErrorCode.REPLICA_NOT_AVAILABLE)
        missing = [(number, ErrorCode.LOG_DIR_NOT_FOUND) for number in (0, 7)]
        assert told == [(0, ErrorCode.NONE), absent, *missing]

    with_door(tmp_path, scenario)
