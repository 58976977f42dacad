"""A consumer inside the broker: what its client does while it polls, joins or leaves."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from tidemark_broker.coordinator.core.requests import GroupResponse, OffsetCommit, OffsetToCommit
from tidemark_broker.http.consumers.group_consumer import (
    ConsumerSettings,
    GroupConsumer,
    Unreadable,
)
from tidemark_broker.http.consumers.group_member import (
    CoordinatorLookup,
    Generation,
    GroupMemberClient,
)
from tidemark_broker.http.consumers.peer_connections import BrokerConnections
from tidemark_broker.http.consumers.positions import Commit
from tidemark_broker.kafka.network.request import ApiHandler
from tidemark_broker.kafka_wire.messages.api_versions import SupportedApi
from tidemark_broker.kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidemark_broker.kafka_wire.messages.group_offsets import OFFSET_COMMIT_API, OFFSET_FETCH_API
from tidemark_broker.kafka_wire.messages.metadata import METADATA_API
from tidemark_broker.kafka_wire.messages.offsets import LIST_OFFSETS_API
from tidemark_broker.kafka_wire.messages.schema import Api, Values
from tidemark_broker.metadata.metadata_cache import MetadataCache
from tidemark_broker.replication.results import FetchResult
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.topic_names import OFFSETS_TOPIC

from tests.support.in_process_pool import TOPIC, TOPIC_ID, a_batch
from tests.support.kafka_test_client import (
    ONLY,
    Client,
    KafkaTestClient,
    produce,
    with_kafka_client,
)
from tests.support.waiting import HANG_SECONDS, eventually

PLACE = (TOPIC, 0)


def run(scenario: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), HANG_SECONDS))


class OneMemberGroup(CoordinatorLookup):
    """A coordinator of a group of one; `may_join`: when a JoinGroup is answered."""

    def __init__(self) -> None:
        self.may_join = asyncio.Event()
        self.requested: list[str] = []

    async def ask(self, api: Api, values: Values, timeout_ms: int) -> Values:
        self.requested.append(api.name)
        if api.name == "JoinGroup":
            await self.may_join.wait()
            return {
                "error": 0,
                "member_id": "m",
                "generation_id": 3,
                "leader_id": "another",
                "skip_assignment": False,
                "protocol_type": "consumer",
                "protocol": "range",
            }
        if api.name == "SyncGroup":
            return {"error": 0, "assignment": b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"}
        return {"error": 0}


class Member:
    def __init__(self) -> None:
        self.group = OneMemberGroup()
        self.revoked: list[Generation] = []
        self.may_revoke = asyncio.Event()
        self.membership = GroupMemberClient(
            self.group, MetadataCache(), before_revoke=self._before_revoke
        )
        self.running = asyncio.create_task(self.membership.run())

    async def _before_revoke(self, generation: Generation) -> None:
        self.revoked.append(generation)
        await self.may_revoke.wait()


def test_what_a_client_assigns_while_its_group_is_left_stays_assigned() -> None:
    async def scenario() -> None:
        member = Member()
        member.group.may_join.set()
        member.membership.subscribe((TOPIC,))
        assert await member.membership.wait_until_joined(HANG_SECONDS)
        member.membership.subscribe(())
        member.membership.assign((PLACE,))
        await eventually(lambda: member.revoked)
        assert member.revoked == [Generation(3, "m")]  # what is committed then is the group's
        member.may_revoke.set()
        await eventually(lambda: "LeaveGroup" in member.group.requested)
        await asyncio.sleep(0)
        assert member.membership.generation == Generation(partitions=(PLACE,), is_manual=True)
        member.running.cancel()

    run(scenario)


def test_what_a_client_assigns_while_it_joins_its_group_stays_assigned() -> None:
    async def scenario() -> None:
        member = Member()
        member.membership.subscribe((TOPIC,))
        await eventually(lambda: member.group.requested == ["JoinGroup"])
        member.membership.subscribe(())
        member.membership.assign((PLACE,))
        member.group.may_join.set()
        await eventually(lambda: "LeaveGroup" in member.group.requested)
        await asyncio.sleep(0)
        assert member.membership.generation.is_manual
        member.running.cancel()

    run(scenario)


async def manual_consumer(kafka_client: KafkaTestClient) -> GroupConsumer:
    """Of the only partition, from offset 0 on."""
    settings = ConsumerSettings("readers", "me", commits_itself=False)
    consumer = GroupConsumer(
        settings, kafka_client.context.groups, kafka_client.partitions.metadata
    )
    consumer.membership.assign((PLACE,))
    await consumer.seek({PLACE: 0})
    return consumer


GENERATION = Generation(3, "m", (PLACE,))


class Committing:
    """A consumer that commits by itself, whose coordinator takes everything."""

    def __init__(
        self, kafka_client: KafkaTestClient, monkeypatch: pytest.MonkeyPatch, reset: str = "latest"
    ) -> None:
        settings = ConsumerSettings("readers", "me", reset=reset)
        self.consumer = GroupConsumer(
            settings, kafka_client.context.groups, kafka_client.partitions.metadata
        )
        self.positions = self.consumer._positions
        self.membership = self.consumer.membership
        self.commits: list[int] = []
        self.committed = -1
        self.membership.generation = GENERATION
        monkeypatch.setattr(self.membership, "leave", AsyncMock())
        monkeypatch.setattr(self.positions.coordinator_lookup, "ask", self._ask)
        self.positions.enter(GENERATION)

    async def _ask(self, api: object, values: dict[str, Any], _timeout_ms: int) -> dict[str, Any]:
        if "groups" in values:
            entry = {"partition": 0, "offset": self.committed, "metadata": ""}
            found = {"error": 0, "topics": ({"topic": TOPIC, "partitions": (entry,)},)}
            return {"groups": (found,)}
        (topic,) = values["topics"]
        (entry,) = topic["partitions"]
        self.commits.append(entry["offset"])
        return {"topics": ({"topic": TOPIC, "partitions": ({"partition": 0, "error": 0},)},)}

    def read_to(self, offset: int) -> None:
        """A poll whose answer ends there."""
        self.positions.confirm()
        assert self.positions.hand_out(PLACE, self.positions.next_offsets[PLACE], offset)

    async def revoke(self) -> list[int]:
        await self.consumer._commit_confirmed(GENERATION)
        return self.commits


def test_a_rebalance_commits_what_its_client_has_come_back_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be working on the last answer, or have died with it (0028)."""

    async def scenario(kafka_client: KafkaTestClient) -> None:
        it = Committing(kafka_client, monkeypatch)
        it.committed = 0
        await it.positions.look_up((PLACE,))
        it.read_to(10)
        assert await it.revoke() == []
        it.read_to(20)
        assert await it.revoke() == [10]
        assert await it.revoke() == [10]
        assert await it.consumer.commit() == {PLACE: ErrorCode.NONE}  # its client says so
        assert await it.revoke() == [10, 20]
        it.read_to(30)
        it.read_to(40)
        assert await it.consumer.commit({PLACE: Commit(35)}) == {PLACE: ErrorCode.NONE}
        assert await it.revoke() == [10, 20, 35]  # not back to 30

    with_kafka_client(tmp_path, scenario)


@pytest.mark.parametrize("is_requested", [True, False])
def test_only_who_asks_for_its_end_is_done_with_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_requested: bool
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        it = Committing(kafka_client, monkeypatch)
        it.committed = 0
        await it.positions.look_up((PLACE,))
        it.read_to(10)
        it.read_to(20)
        await it.consumer.close(is_requested=is_requested)
        assert it.commits == [20 if is_requested else 10]

    with_kafka_client(tmp_path, scenario)


def test_after_a_seek_it_is_committed_where_its_client_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        it = Committing(kafka_client, monkeypatch)
        it.committed = 0
        await it.positions.look_up((PLACE,))
        it.read_to(100)
        await it.consumer.seek({PLACE: 50})
        assert await it.revoke() == [50]
        await it.consumer.seek({PLACE: 30})
        assert await it.consumer.commit() == {PLACE: ErrorCode.NONE}
        assert it.commits == [50, 30]

    with_kafka_client(tmp_path, scenario)


def test_where_a_reset_began_is_committed_before_anything_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked up anew by the next generation, what came meanwhile would be read by nobody."""

    async def scenario(kafka_client: KafkaTestClient) -> None:
        it = Committing(kafka_client, monkeypatch)

        async def end_of(partition: object, end: int) -> int:
            return 500

        monkeypatch.setattr(it.positions, "end_of", end_of)
        await it.positions.look_up((PLACE,))
        assert await it.revoke() == [500]
        it.committed = 500
        it.positions.enter(Generation(4, "m", (PLACE,)))
        await it.positions.look_up((PLACE,))
        assert it.positions.handed_out == {}

    with_kafka_client(tmp_path, scenario)


def test_a_seek_while_a_poll_is_rendered_is_not_overwritten_by_it(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        for number in range(3):
            await client.ask(produce(a_batch(f"value {number}")))
        consumer = await manual_consumer(kafka_client)
        (fetched,) = await consumer.poll(1000, 1000, nullcontext)
        await consumer.seek({PLACE: 1})
        assert not consumer.hand_out(fetched, 3)
        (again,) = await consumer.poll(1000, 1000, nullcontext)
        assert again.offset == 1
        assert consumer.hand_out(again, 3)

    with_kafka_client(tmp_path, scenario)


def test_what_a_client_cannot_take_leaves_others_their_share_until_it_is_behind_it(
    tmp_path: Path,
) -> None:
    """Its batch is larger than the answer: first in it, it is alone there."""

    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(has_groups=True)
        client = await Client.connect(kafka_client)
        for _ in range(2):
            await client.ask(produce(a_batch("v" * 5000)))
        groups = kafka_client.context.groups
        await eventually(lambda: groups.list_groups(frozenset())[0] is ErrorCode.NONE)
        responses: list[GroupResponse] = []
        groups.send(OffsetCommit("g", (OffsetToCommit(TOPIC, 0, 1),)), responses.append)
        await eventually(lambda: responses)
        other = (OFFSETS_TOPIC, 0)
        consumer = await manual_consumer(kafka_client)
        consumer.membership.assign((PLACE, other))
        await consumer.seek({PLACE: 0, other: 0})

        async def topics() -> list[str]:
            found = await consumer.poll(1000, 1000, nullcontext)
            return [each.topic for each in found]

        (alone,) = await consumer.poll(1000, 1000, nullcontext)
        assert alone.topic == TOPIC
        consumer.put_last(alone, alone.offset)
        assert await topics() == [OFFSETS_TOPIC, TOPIC]
        await consumer.seek({PLACE: 1})
        assert await topics() == [TOPIC]

    with_kafka_client(tmp_path, scenario)


def test_a_new_generation_in_the_middle_of_a_poll_is_no_error(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        consumer = await manual_consumer(kafka_client)
        fetching = asyncio.create_task(consumer._fetch(0, 1000))
        await asyncio.sleep(0)  # it asks the leaders next
        consumer._positions.enter(Generation(4, "m", (PLACE,)))
        assert await fetching == ()

    with_kafka_client(tmp_path, scenario)


def test_a_partition_that_cannot_be_read_is_said_and_not_asked_for_without_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0

    async def scenario(kafka_client: KafkaTestClient) -> None:
        def corrupt(*place: object, done: Callable[[FetchResult], None], **how: object) -> Any:
            nonlocal reads
            reads += 1
            done(FetchResult(ErrorCode.KAFKA_STORAGE_ERROR))
            return lambda: None

        monkeypatch.setattr(kafka_client.partitions, "fetch", corrupt)
        consumer = await manual_consumer(kafka_client)
        with pytest.raises(Unreadable, match=f"partition {TOPIC}-0, offset 0") as found:
            await consumer.poll(500, 1000, nullcontext)
        assert found.value.error is ErrorCode.KAFKA_STORAGE_ERROR

    with_kafka_client(tmp_path, scenario)
    assert reads < 30  # one in 50 ms, and the first ones


def test_a_link_that_somebody_has_given_up_waiting_on_holds_up_nobody(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        peers = BrokerConnections(kafka_client.partitions.metadata, "me")
        link = await peers.broker(ONLY)
        requested = FetchTopic(TOPIC_ID, (FetchPartition(0, -1, 0, -1, -1, 1000),))
        waiting = asyncio.create_task(
            link.fetch(FetchRequest(600_000, 1, 1000, (requested,)), 600_000)
        )
        await eventually(lambda: link._waiting)
        waiting.cancel()
        await asyncio.wait([waiting])
        next_link = await peers.broker(ONLY)
        response = await next_link.ask(METADATA_API, {"topics": None}, 10_000)
        assert [topic["topic"] for topic in response["topics"]] == [TOPIC]
        await eventually(lambda: len(kafka_client.listener.connections) == 1)
        peers.close()

    with_kafka_client(tmp_path, scenario)


def test_what_is_given_up_on_a_link_takes_no_other_question_along(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        peers = BrokerConnections(kafka_client.partitions.metadata, "me")
        link = await peers.broker(ONLY)
        requested = FetchTopic(TOPIC_ID, (FetchPartition(0, -1, 0, -1, -1, 1000),))
        given_up = asyncio.create_task(link.fetch(FetchRequest(200, 1, 1000, (requested,)), 10_000))
        await eventually(lambda: link._waiting)
        requesting = asyncio.create_task(link.ask(METADATA_API, {"topics": None}, 10_000))
        await eventually(lambda: len(link._waiting) == 2)
        given_up.cancel()
        assert [topic["topic"] for topic in (await requesting)["topics"]] == [TOPIC]
        peers.close()

    with_kafka_client(tmp_path, scenario)


def test_two_that_need_a_link_at_once_share_it_and_none_is_left_open(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        peers = BrokerConnections(kafka_client.partitions.metadata, "me")
        first, second = await asyncio.gather(peers.broker(ONLY), peers.broker(ONLY))
        assert first is second and first.is_open
        await eventually(lambda: len(kafka_client.listener.connections) == 1)
        peers.close()
        await eventually(lambda: not kafka_client.listener.connections)

    with_kafka_client(tmp_path, scenario)


def test_brokers_ask_each_other_in_versions_that_those_before_an_upgrade_know(
    tmp_path: Path,
) -> None:
    """An unknown version closes the connection: no consumer would go on during an upgrade."""

    async def scenario(kafka_client: KafkaTestClient) -> None:
        peers = BrokerConnections(kafka_client.partitions.metadata, "me")
        for api, version in ((LIST_OFFSETS_API, 10), (OFFSET_COMMIT_API, 9), (OFFSET_FETCH_API, 9)):
            kafka_client.context.handlers[api.api_key] = ApiHandler(
                SupportedApi(api.api_key, version, version),
                kafka_client.context.handlers[api.api_key].handle,
            )
        link = await peers.broker(ONLY)
        group = {"group_id": "g", "member_id": None, "topics": None}
        requested: tuple[tuple[Api, Values], ...] = (
            (LIST_OFFSETS_API, {"replica_id": -1, "topics": ()}),
            (OFFSET_COMMIT_API, {"group_id": "g", "group_instance_id": None, "topics": ()}),
            (OFFSET_FETCH_API, {"groups": (group,)}),
        )
        for api, values in requested:
            await link.ask(api, values, 10_000)
        peers.close()

    with_kafka_client(tmp_path, scenario)
