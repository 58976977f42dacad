"""Asking the controller for topics, and waiting until this broker can serve them."""

import asyncio

from tidemark_broker.metadata.metadata_cache import MetadataCache
from tidemark_broker.metadata.topic_admin_client import Deadline, TopicAdminClient
from tidemark_protocol.controller_messages import MetadataPush, TopicPush
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import Member, PartitionState, TopicState
from tidemark_protocol.topic_messages import (
    AppliedVersionRequest,
    ConfigChange,
    ConfigOperation,
    CreateTopicsRequest,
    NewTopic,
    RequestingBroker,
    TopicResult,
    TopicsRequest,
    TopicsResponse,
    TopicToAlter,
)

from tests.support.waiting import run

ORDERS = TopicId("6f1c8d0a-1b4e-4a64-9a0f-6a3f1b1f2a11")
MADE = TopicsResponse(ErrorCode.NONE, results=(TopicResult("orders", ErrorCode.NONE),))


def push(version: int, leader: BrokerId, config: dict[str, str] | None = None) -> MetadataPush:
    member = Member(BrokerId(1), BrokerEpoch(5))
    state = PartitionState(
        partition=0,
        replicas=(BrokerId(1),),
        leader=leader,
        leader_broker_epoch=BrokerEpoch(5),
        leader_epoch=LeaderEpoch(version),
        in_sync_replicas=(member,),
        eligible_leaders=(),
        partition_epoch=PartitionEpoch(version),
        min_insync_replicas=1,
    )
    topic = TopicPush(TopicState("orders", ORDERS, 1, 1, config=config or {}), (state,))
    return MetadataPush(ControllerEpoch(1), version, False, (), (topic,))


class Requested:
    """A controller that answers `answers` in turn; None: no answer. `applied`: what it says, in
    turn, that every broker has applied; then what this one has."""

    def __init__(self, *answers: TopicsResponse | None, applied: tuple[int, ...] = ()) -> None:
        self.metadata = MetadataCache()
        self.changes = TopicAdminClient(
            self.metadata,
            ask=self._ask,
            requesting=lambda: RequestingBroker("shop/default", BrokerId(1), BrokerEpoch(5)),
        )
        self.requests: list[TopicsRequest] = []
        self._responses = list(answers)
        self.applied = list(applied)

    async def _ask(
        self, path: str, request: TopicsRequest, timeout_ms: int
    ) -> TopicsResponse | None:
        if isinstance(request, AppliedVersionRequest):
            version = self.applied.pop(0) if self.applied else self.metadata.image_version
            return TopicsResponse(ErrorCode.NONE, applied_version=version)
        self.requests.append(request)
        return self._responses.pop(0) if self._responses else None

    def apply(self, version: int, leader: int, config: dict[str, str] | None = None) -> None:
        self.metadata.apply_push(push(version, BrokerId(leader), config))
        self.changes.on_metadata()


def test_a_created_topic_is_answered_once_all_of_it_is_led() -> None:
    async def scenario() -> None:
        requested = Requested(MADE)
        creating = asyncio.create_task(
            requested.changes.create((NewTopic("orders"),), Deadline(30_000))
        )
        for _ in range(3):
            await asyncio.sleep(0)
        requested.apply(1, NO_BROKER)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not creating.done()
        requested.apply(2, 1)
        assert await creating == MADE

    run(scenario)


def test_a_wide_topic_is_not_answered_while_only_its_first_partitions_are_known() -> None:
    """The controller makes a slice at a time, and tells of each."""

    async def scenario() -> None:
        wide = TopicResult("orders", ErrorCode.NONE, partition_count=2)
        requested = Requested(TopicsResponse(ErrorCode.NONE, results=(wide,)))
        requested.apply(1, 1)
        creating = requested.changes.create((NewTopic("orders"),), Deadline(20))
        (result,) = (await creating).results
        assert result.error is ErrorCode.REQUEST_TIMED_OUT

    run(scenario)


def test_a_created_topic_is_answered_once_every_broker_has_heard_of_it() -> None:
    async def scenario() -> None:
        requested = Requested(MADE, applied=(-1, 0))
        requested.apply(1, 1)
        assert await requested.changes.create((NewTopic("orders"),), Deadline(30_000)) == MADE
        assert requested.applied == []

    run(scenario)


def test_a_broker_that_hears_nothing_holds_the_answer_up_for_a_moment_only() -> None:
    async def scenario() -> None:
        requested = Requested(MADE, applied=(-1,) * 1000)
        requested.apply(1, 1)
        assert await requested.changes.create((NewTopic("orders"),), Deadline(100)) == MADE
        assert requested.applied

    run(scenario)


def test_no_answer_is_asked_for_again_under_the_same_id() -> None:
    async def scenario() -> None:
        requested = Requested(None, None, MADE)
        requested.apply(1, 1)
        assert await requested.changes.create((NewTopic("orders"),), Deadline(30_000)) == MADE
        await requested.changes.create((NewTopic("orders"),), Deadline(100))
        ids = [
            request.request_id
            for request in requested.requests
            if isinstance(request, CreateTopicsRequest)
        ]
        assert ids[0] == ids[1] == ids[2] == "1-5-1"
        assert set(ids[3:]) == {"1-5-2"}

    run(scenario)


def test_no_controller_means_timed_out_when_the_time_is_up() -> None:
    async def scenario() -> None:
        requested = Requested()
        response = await requested.changes.create((NewTopic("orders"),), Deadline(200))
        assert response.error is ErrorCode.REQUEST_TIMED_OUT and response.message

    run(scenario)


RETENTION, COMPRESSION = "retention.ms", "compression.type"


def test_a_changed_config_is_seen_also_when_another_change_came_with_it() -> None:
    async def scenario() -> None:
        before = {RETENTION: "1", COMPRESSION: "producer"}
        altered = TopicResult("orders", ErrorCode.NONE, config=before | {RETENTION: "2"})
        response = TopicsResponse(ErrorCode.NONE, results=(altered,))
        requested = Requested(response)
        requested.apply(1, 1, before)
        change = ConfigChange(RETENTION, ConfigOperation.SET, "2")
        altering = asyncio.create_task(
            requested.changes.alter_configs((TopicToAlter("orders", (change,)),), Deadline(30_000))
        )
        for _ in range(3):
            await asyncio.sleep(0)
        assert not altering.done()
        requested.apply(2, 1, {RETENTION: "2", COMPRESSION: "gzip"})
        async with asyncio.timeout(5):
            assert await altering == response

    run(scenario)


def test_who_waited_in_vain_is_forgotten() -> None:
    async def scenario() -> None:
        requested = Requested()
        assert not await requested.changes.wait_until(lambda: False, Deadline(1))
        assert not requested.changes._waiters

    run(scenario)
