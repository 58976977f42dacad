"""The consumer paths where no broker is needed: names, bodies, limits, what is forgotten."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from tidemark_broker.http.consumers import instances as instances_module
from tidemark_broker.http.consumers.bodies import (
    NewConsumerBody,
    OffsetsBody,
    PlacesBody,
    SubscriptionBody,
    decode,
    offsets_of,
    places_of,
    topics_of,
)
from tidemark_broker.http.consumers.instances import Instances
from tidemark_broker.http.formats import EmbeddedFormat
from tidemark_broker.http.problems import HttpProblem
from tidemark_broker.runtime.consumers.group_consumer import ConsumerSettings, GroupConsumer
from tidemark_broker.runtime.consumers.membership import Membership

from tests.unit.http.fake_broker import fake_broker
from tests.waiting import HANG_SECONDS


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
    assert refused(lambda: places_of(PlacesBody([]))) == 400
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
        ("GET", "/consumers/g/instances/nobody/offsets", 405),
        ("PUT", "/consumers/g", 405),
        ("GET", "/consumers/g/nonsense", 404),
    ],
)
def test_paths_that_lead_nowhere_are_refused(method: str, path: str, status: int) -> None:
    async def ask() -> int:
        client = fake_broker().client
        return (await client.request(method, path, b"nonsense")).status

    assert asyncio.run(ask()) == status


class ForgottenConsumer(GroupConsumer):
    """It belongs to no group, so nothing of a broker is asked."""

    closed: list[bool]

    def __init__(self, settings: ConsumerSettings) -> None:
        self.settings = settings
        self.closed = []
        self.is_closed = asyncio.Event()
        self.membership = cast(Membership, self)

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def close(self, *, commits: bool) -> None:
        self.closed.append(commits)
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
