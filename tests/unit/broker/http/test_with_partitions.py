"""HTTP over the real partitions and log: one broker, replication factor 1, no controller."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from tidemark_broker.http.app import create_app
from tidemark_broker.http.broker_view import BrokerView
from tidemark_broker.log.disk import OsDisk
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import LogSettings
from tidemark_broker.metadata.producer_id_manager import ProducerIdManager
from tidemark_broker.quota_manager import ClientQuotaManager
from tidemark_broker.replication.partition_observer import nothing
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_protocol.controller_messages import MetadataPush, TopicPush
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
)
from tidemark_protocol.partition_state import Member, PartitionState, TopicState

from tests.support.fake_controller import no_producer_ids
from tests.unit.broker.http.fake_broker import (
    NOW_MS,
    ORDERS,
    ORDERS_ID,
    Client,
    broker_state,
    no_consumer,
)

ME = BrokerId(0)
MY_EPOCH = BrokerEpoch(10)
TARGET = "/topics/orders/partitions/0"


def led_alone(min_insync_replicas: int = 1, config: dict[str, str] | None = None) -> MetadataPush:
    state = PartitionState(
        partition=0,
        replicas=(ME,),
        leader=ME,
        leader_broker_epoch=MY_EPOCH,
        leader_epoch=LeaderEpoch(0),
        in_sync_replicas=(Member(ME, MY_EPOCH),),
        eligible_leaders=(),
        partition_epoch=PartitionEpoch(0),
        min_insync_replicas=min_insync_replicas,
    )
    topics = (TopicPush(TopicState(ORDERS, ORDERS_ID, 1, 1, config=config or {}), (state,)),)
    return MetadataPush(ControllerEpoch(1), 1, True, (broker_state(0),), topics)


async def client_of(directory: Path, push: MetadataPush, *, low_disk_space: str = "") -> Client:
    partitions = ReplicaManager(ME, scheduler=asyncio.get_running_loop(), wall_clock_s=time.time)
    log = LogManager.open(directory, OsDisk(), broker_id=ME, settings=LogSettings())
    partitions.open(log, submit=nothing)
    partitions.set_broker_epoch(MY_EPOCH)
    partitions.apply_push(push)
    partitions.set_low_disk_space(low_disk_space)
    view = BrokerView(
        partitions,
        ME,
        "shop/default",
        "5f3c",
        lambda: (True, ""),
        no_consumer,
        ClientQuotaManager(tuple),
        ProducerIdManager(no_producer_ids),
    )
    return Client(create_app(view, clock_ms=lambda: NOW_MS))


def test_records_are_written_read_digested_and_counted(tmp_path: Path) -> None:
    async def scenario() -> None:
        client = await client_of(tmp_path / "logs", led_alone())
        for number in range(3):
            body = {"records": [{"key": "k", "value": number}, {"value": [number]}]}
            posted = await client.post(f"{TARGET}?acks=all", body)
            offsets = [entry["offset"] for entry in posted.json()["offsets"]]
            assert offsets == [2 * number, 2 * number + 1]
        accept = "application/vnd.kafka.json.v2+json"
        read = await client.get(f"{TARGET}/records?offset=1", accept=accept)
        found = [(record["offset"], record["value"]) for record in read.json()]
        assert found == [(1, [0]), (2, 1), (3, [1]), (4, 2), (5, [2])]
        assert read.headers["tidemark-next-offset"] == "6"
        topic = (await client.get("/topics/orders")).json()
        assert read.headers["tidemark-topic-id"] == topic["topic_id"]
        assert (await client.get(f"{TARGET}/offsets")).json()["end_offset"] == 6
        replica = (await client.get(f"{TARGET}/replica?to_offset=6")).json()
        assert (replica["role"], len(replica["sha256"])) == ("leader", 64)
        beyond = await client.get(f"{TARGET}/records?offset=7")
        assert (beyond.status, beyond.json()["logEndOffset"]) == (416, 6)
        metrics = (await client.get("/metrics")).body.decode()
        assert "tidemark_replica_high_watermark_offset{" in metrics

    asyncio.run(scenario())


def test_a_long_poll_is_woken_by_a_produce(tmp_path: Path) -> None:
    async def scenario() -> Any:
        client = await client_of(tmp_path / "logs", led_alone())
        target = f"{TARGET}/records?offset=0&max_wait_ms=30000"
        poll = asyncio.create_task(client.get(target))
        for _ in range(200):  # to where it waits: nothing on its way needs time
            await asyncio.sleep(0)
        assert not poll.done()
        await client.post(TARGET, {"records": [{"value": 1}]})
        async with asyncio.timeout(20):
            return (await poll).json()

    assert [record["offset"] for record in asyncio.run(scenario())] == [0]


def test_too_few_replicas_in_sync_write_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        client = await client_of(tmp_path / "logs", led_alone(min_insync_replicas=2))
        refused = await client.post(TARGET, {"records": [{"value": 1}]})
        assert (refused.status, refused.json()["error"]) == (503, "NOT_ENOUGH_REPLICAS")
        assert refused.json()["outcome"] == "not_written"
        assert (await client.get(f"{TARGET}/offsets")).json()["log_end_offset"] == 0

    asyncio.run(scenario())


def test_want_of_disk_space_is_507_and_nothing_is_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        low_disk_space = "no room: delete something"
        client = await client_of(tmp_path / "logs", led_alone(), low_disk_space=low_disk_space)
        refused = await client.post(TARGET, {"records": [{"value": 1}]})
        assert (refused.status, refused.json()["error"]) == (507, "KAFKA_STORAGE_ERROR")
        assert refused.json()["outcome"] == "not_written"
        assert "delete something" in refused.json()["detail"]

    asyncio.run(scenario())


def test_what_is_not_committed_is_not_shown(tmp_path: Path) -> None:
    async def scenario() -> None:
        client = await client_of(tmp_path / "logs", led_alone(min_insync_replicas=2))
        accepted = await client.post(f"{TARGET}?acks=1", {"records": [{"value": 1}]})
        assert accepted.status == 200
        withheld = await client.get(f"{TARGET}/records?offset=0")
        assert (withheld.status, withheld.json()) == (200, [])

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("record", "status", "error"),
    [
        ({"value": 2}, 422, "INVALID_RECORD"),
        ({"key": "b", "value": 2, "timestamp": 2**61}, 422, "INVALID_TIMESTAMP"),
        ({"key": "b", "value": "v" * 5000}, 413, "MESSAGE_TOO_LARGE"),
    ],
)
@pytest.mark.parametrize("target", [TARGET, "/topics/orders"])
def test_the_record_for_which_others_are_refused_is_named(
    tmp_path: Path, record: dict[str, Any], status: int, error: str, target: str
) -> None:
    """KIP-467, over HTTP: index and message; the others may be sent again."""

    async def scenario() -> None:
        config = {"cleanup.policy": "compact", "max.message.bytes": "2048"}
        client = await client_of(tmp_path / "logs", led_alone(config=config))
        records = [{"key": "a", "value": 1}, record, {"key": "c", "value": 3}]
        refused = await client.post(target, {"records": records})
        problem = refused.json()
        assert (refused.status, problem["error"]) == (status, error)
        assert problem["outcome"] == "not_written"
        assert [found["index"] for found in problem["recordErrors"]] == [1]
        assert problem["recordErrors"][0]["message"] in problem["detail"]
        again = await client.post(target, {"records": [records[0], records[2]]})
        assert [entry["offset"] for entry in again.json()["offsets"]] == [0, 1]

    asyncio.run(scenario())
