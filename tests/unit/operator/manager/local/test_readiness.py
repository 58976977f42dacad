"""What `tidemark dev` tells once brokers are up and topics are led."""

import asyncio

from tidemark_operator.controller.core.views import BrokerView
from tidemark_operator.manager.local.readiness import (
    PoolReadiness,
    Readiness,
    notify_when_ready,
    ready_lines,
)
from tidemark_protocol.controller_messages import Endpoints
from tidemark_protocol.ids import BrokerEpoch, BrokerId


def broker(number: int) -> BrokerView:
    url = f"http://127.0.0.1:{18080 + number}"
    endpoints = Endpoints("127.0.0.1", 19092 + number, 18080 + number, url)
    return BrokerView(BrokerId(number), BrokerEpoch(1), "Active", endpoints, "rack", "x")


def readiness(up: int, *, topics: tuple[str, ...] = (), waiting: tuple[str, ...] = ()) -> Readiness:
    pool = PoolReadiness("default", 2, tuple(broker(number) for number in range(up)))
    return Readiness((pool,), topics, waiting, ("topic big is not ready: needs 5 brokers",))


def test_dev_tells_nothing_before_brokers_are_up_and_topics_are_led() -> None:
    reported: list[str] = []
    states = iter(
        [
            Readiness((), (), (), ()),
            readiness(1, topics=("orders",)),
            readiness(2, waiting=("orders",)),
            readiness(2, topics=("orders",)),
        ]
    )
    seen: list[tuple[bool, int]] = []

    async def read() -> Readiness:
        found = next(states)
        seen.append((found.is_ready, len(reported)))
        return found

    async def story() -> None:
        await notify_when_ready(
            read, reported.append, controller_url="http://127.0.0.1:17070", data_dir="/data"
        )

    asyncio.run(story())
    assert seen == [(False, 0), (False, 0), (False, 0), (True, 0)]
    assert reported[0] == "ready: 2 of 2 brokers up, 1 topic with leaders"


def test_dev_tells_addresses_and_commands_that_work_there() -> None:
    lines = ready_lines(
        readiness(2, topics=("orders", "__consumer_offsets")), "http://127.0.0.1:27070", "/data"
    )
    text = "\n".join(lines)
    for words in (
        "topic big is not ready: needs 5 brokers",
        "http://127.0.0.1:18080,http://127.0.0.1:18081",
        "127.0.0.1:19092,127.0.0.1:19093",
        "controller    http://127.0.0.1:27070",
        "tidemark produce orders hello --server http://127.0.0.1:27070",
    ):
        assert words in text
    assert "--server" not in "\n".join(ready_lines(readiness(2), "http://127.0.0.1:17070", "/data"))


def test_dev_without_topics_begins_with_making_one() -> None:
    lines = ready_lines(readiness(2), "http://127.0.0.1:17070", "/data")
    assert lines[-4:-1] == [
        "  tidemark topics create orders",
        "  tidemark produce orders hello",
        "  tidemark consume orders --from earliest --max 1",
    ]


def test_the_commands_to_try_have_a_token_where_clients_authenticate() -> None:
    lines = ready_lines(readiness(2), "http://127.0.0.1:17070", "/data", token_file="/a b/admin")
    first = lines.index("try in another terminal:") + 1
    assert lines[first] == "  export TIDEMARK_TOKEN_FILE='/a b/admin'"
