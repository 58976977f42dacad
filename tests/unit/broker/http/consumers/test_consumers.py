"""The consumer paths where no broker is needed: names, bodies, limits, what is forgotten."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

import pytest
from tidemark_broker.coordinator.core.consumer_protocol import TopicPartition
from tidemark_broker.http.consumers import instances as instances_module
from tidemark_broker.http.consumers.bodies import (
    NewConsumerBody,
    OffsetsBody,
    SubscriptionBody,
    TopicPartitionsBody,
    decode,
    offsets_of,
    places_of,
    topics_of,
)
from tidemark_broker.http.consumers.group_consumer import (
    ConsumerSettings,
    Fetched,
    GroupConsumer,
    ReserveBytes,
)
from tidemark_broker.http.consumers.group_member import (
    CoordinatorLookup,
    Generation,
    GroupMemberClient,
)
from tidemark_broker.http.consumers.instances import Instances
from tidemark_broker.http.consumers.positions import Commit
from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.media_types import EmbeddedFormat
from tidemark_broker.http.problems import HttpProblem
from tidemark_broker.kafka_wire.records.record_batch import NewRecord, build_batch
from tidemark_broker.metadata.metadata_cache import MetadataCache
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import TopicId

from tests.support.waiting import HANG_SECONDS
from tests.unit.broker.http.fake_broker import Client, fake_broker

ORDERS_ID = TopicId("7f1c0000-0000-0000-0000-000000000001")


def refused(act: Callable[[], Any]) -> int:
    with pytest.raises(HttpProblem) as found:
        act()
    return found.value.status


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'{"name": 5}',
        b'{"unknown": 1}',
        b'{"format": "avro"}',
        b'{"auto.offset.reset": "soon"}',
        b'{"name": "a/b"}',
        b'{"isolation.level": "read_all"}',
    ],
)
def test_a_new_consumer_that_nobody_can_make_is_refused(data: bytes) -> None:
    assert refused(lambda: decode(data, NewConsumerBody).check()) == 400


@pytest.mark.parametrize(
    "data",
    [b'{"enable.auto.commit": "maybe"}', b'{"auto.commit.enable": "no"}'],
)
def test_a_flag_is_true_or_false(data: bytes) -> None:
    assert refused(lambda: decode(data, NewConsumerBody).commits_itself) == 400


@pytest.mark.parametrize("value", ['"x"', "-1", '"99999999999999999999"', "40000"])
def test_a_timeout_is_a_number_within_its_bounds(value: str) -> None:
    data = b'{"consumer.request.timeout.ms": %s}' % value.encode()
    assert refused(lambda: decode(data, NewConsumerBody).request_timeout_ms) == 400


def test_numbers_and_flags_may_be_strings_as_rest_proxy_clients_send_them() -> None:
    body = decode(
        b'{"auto.commit.enable": "false", "fetch.min.bytes": "7",'
        b' "consumer.request.timeout.ms": "500"}',
        NewConsumerBody,
    )
    found = (body.commits_itself, body.smallest_fetch_bytes, body.request_timeout_ms)
    assert found == (False, 7, 500)


def test_lists_are_neither_empty_nor_endless() -> None:
    assert refused(lambda: topics_of(SubscriptionBody([]))) == 400
    assert (
        refused(lambda: topics_of(SubscriptionBody(["t"] + [f"{n}" for n in range(2000)]))) == 400
    )
    assert refused(lambda: places_of(TopicPartitionsBody([]))) == 400
    negative = decode(b'{"offsets":[{"topic":"t","partition":0,"offset":-1}]}', OffsetsBody)
    assert refused(lambda: offsets_of(negative)) == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/consumers/g", 400),
        ("POST", "/consumers/", 400),
        ("POST", "/consumers/g/instances/nobody/offsets", 404),
        ("GET", "/consumers/g/instances/nobody/records?timeout=1", 404),
        ("DELETE", "/consumers/g/instances/nobody", 404),
        ("GET", "/consumers/g/instances/nobody/offsets", 404),
        ("GET", "/consumers/g/instances/nobody/assignments", 404),
        ("GET", "/consumers/g/instances/nobody/positions", 405),
        ("PUT", "/consumers/g", 405),
        ("GET", "/consumers/g/nonsense", 404),
    ],
)
def test_paths_that_lead_nowhere_are_refused(method: str, path: str, status: int) -> None:
    async def ask() -> int:
        client = fake_broker().client
        found = await client.request(method, path, b"nonsense")
        assert found is not None
        return found.status

    assert asyncio.run(ask()) == status


class ForgottenConsumer(GroupConsumer):
    """It belongs to no group, so nothing of a broker is asked."""

    closed: list[bool]

    def __init__(self, settings: ConsumerSettings) -> None:
        self.settings = settings
        self.closed = []
        self.is_closed = asyncio.Event()
        self.membership = cast(GroupMemberClient, self)

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def close(self, *, is_requested: bool = False, commits: bool = True) -> None:
        self.closed.append(commits)
        self.is_closed.set()


class FailingMemberClient(ForgottenConsumer):
    reason = ""

    async def run(self) -> None:
        raise KeyError("our own fault")

    def fail(self, reason: str) -> None:
        self.reason = reason
        self.is_closed.set()


def with_instances(act: Callable[[Instances], Awaitable[None]]) -> None:
    async def run() -> None:
        instances = Instances(ForgottenConsumer)
        await act(instances)
        await instances.close()

    asyncio.run(run())


def test_a_forgotten_consumer_is_ended_and_commits_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instances_module, "IDLE_SECONDS", 0.02)
    monkeypatch.setattr(instances_module, "SWEEP_SECONDS", 0.01)

    async def act(instances: Instances) -> None:
        made = instances.create(ConsumerSettings("g", "c"), EmbeddedFormat.JSON, 100)
        busy = instances.create(ConsumerSettings("g", "busy"), EmbeddedFormat.JSON, 100)
        busy.polls = 1
        assert isinstance(made.consumer, ForgottenConsumer)
        async with asyncio.timeout(HANG_SECONDS):
            await made.consumer.is_closed.wait()
        assert made.consumer.closed == [False]
        assert refused(lambda: instances.find("g", "c")) == 404
        assert instances.find("g", "busy") is busy

    with_instances(act)


def test_names_are_taken_and_there_is_an_end_to_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instances_module, "MAX_INSTANCES", 1)

    async def act(instances: Instances) -> None:
        settings = ConsumerSettings("g", "c")
        made = instances.create(settings, EmbeddedFormat.JSON, 100)
        assert refused(lambda: instances.create(settings, EmbeddedFormat.JSON, 100)) == 409
        other = ConsumerSettings("g", "d")
        assert refused(lambda: instances.create(other, EmbeddedFormat.JSON, 100)) == 503
        await instances.delete(made)
        assert isinstance(made.consumer, ForgottenConsumer)
        assert made.consumer.closed == [True]
        instances.create(other, EmbeddedFormat.JSON, 100)

    with_instances(act)


def test_a_consumer_whose_membership_fails_says_so_from_then_on() -> None:
    async def run() -> None:
        instances = Instances(FailingMemberClient)
        made = instances.create(ConsumerSettings("g", "c"), EmbeddedFormat.JSON, 100)
        assert isinstance(made.consumer, FailingMemberClient)
        async with asyncio.timeout(HANG_SECONDS):
            await made.consumer.is_closed.wait()
        assert made.consumer.reason == "its part in the group has failed (KeyError)"
        await instances.close()

    asyncio.run(run())


def test_a_failed_membership_has_no_generation_and_a_reason() -> None:
    membership = GroupMemberClient(
        cast(CoordinatorLookup, None), MetadataCache(), before_revoke=lambda _: asyncio.sleep(0)
    )
    membership.generation = Generation(4, "m", (("orders", 0),))
    membership.fail("it has failed")
    assert not membership.generation.has_joined
    assert membership.problem is not None and membership.problem.is_over


class TwoPartitions(ForgottenConsumer):
    """Its polls find five records in each of two partitions."""

    def __init__(self, settings: ConsumerSettings) -> None:
        super().__init__(settings)
        self.handed_out: list[tuple[int, int]] = []
        self.reserved: list[int] = []

    @property
    def generation(self) -> Generation:
        return Generation(is_manual=True)

    async def poll(
        self, wait_ms: int, max_bytes: int, reserved: ReserveBytes
    ) -> tuple[Fetched, ...]:
        with reserved(max_bytes):
            self.reserved.append(max_bytes)
        records = [NewRecord(None, b"%d" % number, ()) for number in range(5)]
        batch = build_batch(records, timestamp_ms=1)
        return tuple(Fetched("orders", partition, 0, batch, ORDERS_ID) for partition in range(2))

    def hand_out(self, fetched: Fetched, next_offset: int) -> bool:
        self.handed_out.append((fetched.partition, next_offset))
        return True


def test_records_and_bytes_of_a_poll_are_bounded_for_all_partitions_together() -> None:
    made: list[TwoPartitions] = []

    def new_consumer(settings: ConsumerSettings) -> GroupConsumer:
        made.append(TwoPartitions(settings))
        return made[-1]

    async def run() -> None:
        limits = HttpLimits(records=4, bytes_in_flight=10_000)
        broker = fake_broker(limits=limits, new_consumer=new_consumer)
        assert (
            await broker.client.post("/consumers/g", {"name": "c", "format": "json"})
        ).status == 200
        path = "/consumers/g/instances/c/records?max_bytes=5000"
        found = await broker.client.get(path)
        assert [record["value"] for record in found.json()] == [0, 1, 0, 1]
        (consumer,) = made
        assert (consumer.handed_out, consumer.reserved) == ([(0, 2), (1, 2)], [5000])
        broker.app._admission.bytes_in_flight = 6_000  # of others
        assert (await broker.client.get(path)).status == 503
        assert consumer.reserved == [5000]
        assert broker.app._admission.bytes_in_flight == 6_000
        await broker.app._consumers.instances.close()

    asyncio.run(run())


class OnePartitionWithBytes(TwoPartitions):
    """Partition 0 has 0, 1, bytes, 3; partition 1 has one record more whenever it is asked."""

    def __init__(self, settings: ConsumerSettings) -> None:
        super().__init__(settings)
        self.next_offsets = [0, 0]
        self.is_put_last: list[tuple[int, int]] = []
        self.is_quiet = False

    async def poll(
        self, wait_ms: int, max_bytes: int, reserved: ReserveBytes
    ) -> tuple[Fetched, ...]:
        values = [b"0", b"1", b"\xff", b"3"]
        batch = build_batch([NewRecord(None, value, ()) for value in values], timestamp_ms=1)
        found = [Fetched("orders", 0, self.next_offsets[0], batch, ORDERS_ID)]
        if not self.is_quiet:
            other = build_batch([NewRecord(None, b"7", ())], timestamp_ms=1)
            offset = self.next_offsets[1]
            other = offset.to_bytes(8, "big") + other[8:]
            found.append(Fetched("orders", 1, offset, other, ORDERS_ID))
        return tuple(found)

    def hand_out(self, fetched: Fetched, next_offset: int) -> bool:
        self.next_offsets[fetched.partition] = next_offset
        return True

    def put_last(self, fetched: Fetched, offset: int) -> None:
        self.is_put_last.append((fetched.partition, offset))


async def polls_of_json(
    count: int, *, is_quiet: bool
) -> tuple[OnePartitionWithBytes, list[tuple[int, Any]]]:
    made: list[OnePartitionWithBytes] = []

    def new_consumer(settings: ConsumerSettings) -> GroupConsumer:
        made.append(OnePartitionWithBytes(settings))
        made[-1].is_quiet = is_quiet
        return made[-1]

    broker = fake_broker(new_consumer=new_consumer)
    await broker.client.post("/consumers/g", {"name": "c", "format": "json"})
    found = []
    for _ in range(count):
        response = await broker.client.get("/consumers/g/instances/c/records")
        found.append((response.status, response.json()))
    await broker.app._consumers.instances.close()
    return made[0], found


def values_of(answer: tuple[int, Any]) -> list[Any]:
    assert answer[0] == 200, answer
    return [record["value"] for record in answer[1]]


def test_a_group_reads_on_behind_a_record_that_its_format_cannot_show() -> None:
    _, (before, problem, behind) = asyncio.run(polls_of_json(3, is_quiet=True))
    assert values_of(before) == [0, 1]
    status, found = problem
    assert (status, found["error"]) == (406, "INVALID_RECORD")
    place = (found["topic"], found["partition"], found["offset"], found["nextOffset"])
    assert place == ("orders", 0, 2, 3)
    assert values_of(behind) == [3]


def test_a_record_that_cannot_be_shown_is_told_also_while_other_partitions_always_have_some() -> (
    None
):
    consumer, (first, second, problem, behind) = asyncio.run(polls_of_json(4, is_quiet=False))
    assert (values_of(first), values_of(second)) == ([0, 1, 7], [7])
    assert problem[0] == 406
    assert values_of(behind) == [3, 7]
    assert consumer.is_put_last == [(0, 2), (0, 2), (0, 3)]
    assert consumer.next_offsets == [4, 3]


class Committing(ForgottenConsumer):
    """Subscribed to `orders`, with partition 0 of it; the group has an offset of partition 1."""

    topics = ("orders",)
    generation = Generation(3, "m", (("orders", 0),))

    def __init__(self, settings: ConsumerSettings) -> None:
        super().__init__(settings)
        self.commits: list[dict[TopicPartition, Commit] | None] = []

    async def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Commit]:
        return {place: Commit(41, "m") for place in places if place == ("orders", 1)}

    async def commit(
        self, commits: dict[TopicPartition, Commit] | None = None
    ) -> dict[TopicPartition, ErrorCode]:
        self.commits.append(commits)
        lost = ErrorCode.REBALANCE_IN_PROGRESS
        return {place: lost for place in commits or () if place != ("orders", 0)}


def with_committing(
    act: Callable[[Client, Committing], Awaitable[None]], kind: type[Committing] = Committing
) -> None:
    made: list[Committing] = []

    def new_consumer(settings: ConsumerSettings) -> GroupConsumer:
        made.append(kind(settings))
        return made[-1]

    async def run() -> None:
        broker = fake_broker(new_consumer=new_consumer)
        await broker.client.post("/consumers/g", {"name": "c"})
        await act(broker.client, made[0])
        await broker.app._consumers.instances.close()

    asyncio.run(run())


C = "/consumers/g/instances/c"


@pytest.mark.parametrize("body", [b"", b" ", b"{}", b'{"offsets":[]}', b'{"offsets":null}'])
def test_a_commit_that_names_no_offsets_is_of_all_that_was_polled(body: bytes) -> None:
    async def act(client: Client, consumer: Committing) -> None:
        assert (await client.post(f"{C}/offsets", body)).status == 204
        assert consumer.commits == [None]

    with_committing(act)


def offset_of(topic: str, partition: int) -> dict[str, Any]:
    return {"offsets": [{"topic": topic, "partition": partition, "offset": 1}]}


@pytest.mark.parametrize("path", ["offsets", "positions"])
@pytest.mark.parametrize("place", [("nonesuch", 0), ("orders", 7)])
def test_offsets_of_a_partition_that_there_is_not_are_404(
    path: str, place: tuple[str, int]
) -> None:
    async def act(client: Client, consumer: Committing) -> None:
        found = await client.post(f"{C}/{path}", offset_of(*place))
        assert (found.status, found.json()["error"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
        assert consumer.commits == []

    with_committing(act)


class SubscribedElsewhere(Committing):
    topics = ("another",)


def test_a_commit_of_a_partition_that_was_never_its_own_is_told_so() -> None:
    async def act(client: Client, consumer: Committing) -> None:
        found = await client.post(f"{C}/offsets", offset_of("orders", 1))
        assert (found.status, found.json()["error"]) == (409, "INVALID_REQUEST")
        assert "neither its subscription nor its assignments" in found.json()["detail"]

    with_committing(act, SubscribedElsewhere)


def test_a_commit_of_a_partition_that_others_have_now_is_told_so() -> None:
    async def act(client: Client, consumer: Committing) -> None:
        found = await client.post(f"{C}/offsets", offset_of("orders", 1))
        assert (found.status, found.json()["error"]) == (409, "REBALANCE_IN_PROGRESS")

    with_committing(act)


def test_committed_offsets_are_told_of_those_that_it_has_or_that_are_asked_for() -> None:
    async def act(client: Client, consumer: Committing) -> None:
        assert (await client.get(f"{C}/offsets")).json() == {"offsets": []}
        places = [{"topic": "orders", "partition": number} for number in range(2)]
        body = json.dumps({"partitions": places}).encode()
        found = await client.request("GET", f"{C}/offsets", body)
        assert found is not None
        assert found.json() == {
            "offsets": [{"topic": "orders", "partition": 1, "offset": 41, "metadata": "m"}]
        }
        unknown = json.dumps({"partitions": [{"topic": "orders", "partition": 7}]}).encode()
        refused = await client.request("GET", f"{C}/offsets", unknown)
        assert refused is not None and refused.status == 404

    with_committing(act)


def test_assignments_are_told() -> None:
    async def act(client: Client, consumer: Committing) -> None:
        found = await client.get(f"{C}/assignments")
        assert found.json() == {"partitions": [{"topic": "orders", "partition": 0}]}

    with_committing(act)
