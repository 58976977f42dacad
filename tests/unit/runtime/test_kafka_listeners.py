"""Clients are told the addresses of the listener that they came in by."""

import asyncio
from pathlib import Path
from typing import Any

from tidemark_broker.wire.metadata import METADATA_API
from tidemark_protocol.controller_messages import ListenerAddress
from tidemark_protocol.error_codes import ErrorCode

from tests.unit.runtime.kafka_door import ONLY, Client, Door, with_door

OUTSIDE = "outside"


async def metadata_at(port: int) -> dict[str, Any]:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    client.send(METADATA_API.encode_request(7, 9, "test", {"topics": None}))
    size = int.from_bytes(await client.reader.readexactly(4), "big")
    _, values = METADATA_API.decode_response(await client.reader.readexactly(size), 9)
    client.close()
    return values


def brokers_of(values: dict[str, Any]) -> list[tuple[str, int]]:
    return [(each["host"], each["port"]) for each in values["brokers"]]


def test_each_listener_tells_its_own_addresses(tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        outside = await door.listener.start("127.0.0.1", 0, listener=OUTSIDE)
        door.push(addresses=(ListenerAddress(OUTSIDE, ONLY, "node.example", 30001),))
        assert brokers_of(await metadata_at(door.port)) == [("127.0.0.1", door.port)]
        assert brokers_of(await metadata_at(outside)) == [("node.example", 30001)]

    with_door(tmp_path, scenario)


def test_a_broker_without_an_address_there_is_none_and_leads_nothing(tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        outside = await door.listener.start("127.0.0.1", 0, listener=OUTSIDE)
        found = await metadata_at(outside)
        (topic,) = found["topics"]
        (partition,) = topic["partitions"]
        assert (brokers_of(found), partition["leader"], partition["error"]) == (
            [],
            -1,
            ErrorCode.LISTENER_NOT_FOUND,
        )

    with_door(tmp_path, scenario)


def test_addresses_stay_when_a_new_controller_has_not_read_them_yet(tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        outside = await door.listener.start("127.0.0.1", 0, listener=OUTSIDE)
        door.push(addresses=(ListenerAddress(OUTSIDE, ONLY, "node.example", 30001),))
        door.push()
        assert brokers_of(await metadata_at(outside)) == [("node.example", 30001)]

    with_door(tmp_path, scenario)
