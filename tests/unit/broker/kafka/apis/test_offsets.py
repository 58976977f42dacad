"""What a client at the Kafka port hears of a leader's offsets: the latest one once it is known
(KIP-207), and where an epoch ended, so that it notices what was cut (KIP-320)."""

from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.messages.offsets import (
    EARLIEST,
    LATEST,
    LIST_OFFSETS_API,
    MAX_TIMESTAMP,
    OFFSET_FOR_LEADER_EPOCH_API,
)
from tidemark_broker.kafka_wire.messages.schema import Api, Values
from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.results import ProduceResult
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

from tests.support.in_process_pool import TOPIC, a_batch
from tests.support.waiting import eventually
from tests.unit.broker.kafka.apis.test_admin_requests import ask
from tests.unit.broker.replication.test_replication_link import Link, run

NOBODY_LISTENS = 1
UNSAID = (-1, -1)
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
BOTH_APIS = pytest.mark.parametrize("api", [LIST_OFFSETS_API, OFFSET_FOR_LEADER_EPOCH_API])


def leading(link: Link) -> Partition:
    replica = link.partitions[1].find_leading(TOPIC, 0)
    assert not isinstance(replica, ErrorCode)
    return replica


def append(link: Link, *values: str) -> None:
    for value in values:
        results: list[ProduceResult] = []
        link.partitions[1].produce(
            TOPIC, 0, memoryview(a_batch(value)), acks=1, timeout_ms=1000, done=results.append
        )
        assert [result.error for result in results] == [ErrorCode.NONE]


async def committed(link: Link, *values: str) -> None:
    append(link, *values)
    replica = leading(link)
    await eventually(lambda: replica.high_watermark == replica.log.log_end_offset)


async def responded(
    link: Link,
    api: Api,
    *,
    topic: str = TOPIC,
    partition: int = 0,
    current_leader_epoch: int = -1,
    leader_epoch: int = 0,
    timestamp: int = LATEST,
    version: int | None = None,
) -> Values:
    requested = {
        "replica_id": -1,
        "topics": (
            {
                "topic": topic,
                "partitions": (
                    {
                        "partition": partition,
                        "current_leader_epoch": current_leader_epoch,
                        "leader_epoch": leader_epoch,
                        "timestamp": timestamp,
                    },
                ),
            },
        ),
    }
    ((found,),) = [
        each["partitions"] for each in (await ask(link, api, requested, version))["topics"]
    ]
    response: Values = found
    return response


async def end_of(link: Link, leader_epoch: int) -> tuple[int, int]:
    found = await responded(link, OFFSET_FOR_LEADER_EPOCH_API, leader_epoch=leader_epoch)
    assert found["error"] == ErrorCode.NONE
    return found["leader_epoch"], found["end_offset"]


async def reported(link: Link, timestamp: int, version: int | None = None) -> tuple[int, int]:
    found = await responded(link, LIST_OFFSETS_API, timestamp=timestamp, version=version)
    return found["error"], found["offset"]


def test_a_new_leader_tells_no_latest_offset_below_what_its_predecessor_may_have_told(
    tmp_path: Path,
) -> None:
    async def scenario(link: Link) -> None:
        link.push(port=NOBODY_LISTENS)
        append(link, "a")
        assert await reported(link, LATEST) == (ErrorCode.NONE, 0)
        link.push(port=NOBODY_LISTENS)
        for timestamp in (LATEST, MAX_TIMESTAMP, 0):
            assert await reported(link, timestamp) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert await reported(link, LATEST, version=5) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert await reported(link, LATEST, version=4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert await reported(link, EARLIEST) == (ErrorCode.NONE, 0)
        link.push()
        await committed(link)
        assert (
            await reported(link, LATEST)
            == await reported(link, LATEST, version=4)
            == (ErrorCode.NONE, 1)
        )

    run(tmp_path, scenario)


@pytest.mark.parametrize(("timestamp", "first_version"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_a_place_in_the_log_may_be_asked_from_its_own_version_on(
    tmp_path: Path, timestamp: int, first_version: int
) -> None:
    """-5 and -6 are of tiered storage: there is no such offset, and that is no error."""

    async def scenario(link: Link) -> None:
        link.push()
        await committed(link, "a")
        unsupported = (ErrorCode.UNSUPPORTED_VERSION, -1)
        assert await reported(link, timestamp, version=first_version - 1) == unsupported
        error, offset = await reported(link, timestamp, version=first_version)
        assert (error, offset) == (ErrorCode.NONE, 0 if timestamp > -5 else -1)
        assert await reported(link, -7) == unsupported

    run(tmp_path, scenario)


def test_an_epoch_ends_where_the_next_one_began(tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        link.push()
        await committed(link, "a", "b")
        link.version += 1  # another led in epoch 2, and nothing of it is left
        link.push()
        await committed(link, "c")
        assert await end_of(link, 1) == (1, 2)
        assert await end_of(link, 2) == (1, 2)
        assert await end_of(link, 0) == (0, 0)

    run(tmp_path, scenario)


def test_an_epoch_that_retention_took_ends_where_the_log_starts(tmp_path: Path) -> None:
    """Whoever read up to there is not told that it was cut."""

    async def scenario(link: Link) -> None:
        link.push()
        await committed(link, "a", "b")
        link.version += 1
        link.push()
        await committed(link, "c", "d")
        log = leading(link).log
        log.advance_log_start(Offset(4))
        log.delete_segments_below(Offset(4))
        assert await end_of(link, 0) == (0, 4)
        assert await end_of(link, 1) == (1, 4)

    run(tmp_path, scenario)


def test_of_an_epoch_above_its_own_a_leader_says_nothing(tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        link.push()
        await committed(link, "a")
        assert await end_of(link, 2) == UNSAID
        assert await end_of(link, -1) == UNSAID

    run(tmp_path, scenario)


def test_the_leaders_own_epoch_ends_for_clients_where_they_may_read(tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        link.push()
        await committed(link, "a", "b")
        link.fetchers.stop()
        append(link, "on the leader alone")
        assert leading(link).log.log_end_offset == 3
        assert await end_of(link, 1) == (1, 2)

    run(tmp_path, scenario)


@BOTH_APIS
@pytest.mark.parametrize(
    ("current_leader_epoch", "error"),
    [
        (1, ErrorCode.FENCED_LEADER_EPOCH),
        (2, ErrorCode.NONE),
        (3, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-1, ErrorCode.NONE),
    ],
    ids=["behind", "the same", "ahead", "not said"],
)
def test_who_does_not_know_the_leaders_epoch_is_told_to_look_it_up(
    tmp_path: Path, api: Api, current_leader_epoch: int, error: ErrorCode
) -> None:
    async def scenario(link: Link) -> None:
        link.push()
        await committed(link, "a")
        link.push()
        found = await responded(
            link, api, current_leader_epoch=current_leader_epoch, leader_epoch=1
        )
        assert found["error"] == error
        end = found["end_offset" if "end_offset" in found else "offset"]
        assert end == (-1 if error else 1)

    run(tmp_path, scenario)


@BOTH_APIS
def test_who_does_not_lead_says_nothing_of_offsets(tmp_path: Path, api: Api) -> None:
    async def scenario(link: Link) -> None:
        link.push(partition_count=2)
        assert (await responded(link, api, topic="nobody"))["error"] == UNKNOWN
        assert (await responded(link, api, partition=2))["error"] == UNKNOWN
        assert (await responded(link, api, partition=1))["error"] == NOT_LEADER
        await committed(link, "a")
        link.push(leader=2, partition_count=2)
        found = await responded(link, api, leader_epoch=1)
        assert found["error"] == NOT_LEADER
        assert found["leader_epoch"] == -1

    run(tmp_path, scenario)


def test_a_look_up_that_meets_damage_marks_it(tmp_path: Path) -> None:  # 0089
    async def scenario(link: Link) -> None:
        link.push()
        await committed(link, "a", "b")
        log = leading(link).log
        path = log.segments[0].path
        data = bytearray(path.read_bytes())
        data[len(data) // 2 - 1] ^= 1
        path.write_bytes(data)
        found = await responded(link, LIST_OFFSETS_API, timestamp=0)
        assert found["error"] == ErrorCode.KAFKA_STORAGE_ERROR
        corruption = log.corruption_marker.corruption
        assert corruption is not None
        assert corruption.offset == 1

    run(tmp_path, scenario)
