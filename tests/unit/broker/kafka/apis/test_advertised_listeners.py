"""Clients are told the addresses of the listener that they came in by."""

import asyncio
from pathlib import Path

from tidemark_broker.kafka_wire.messages.group_membership import FIND_COORDINATOR_API
from tidemark_broker.kafka_wire.messages.metadata import METADATA_API
from tidemark_broker.kafka_wire.messages.schema import Api, Values
from tidemark_protocol.controller_messages import ListenerAddress
from tidemark_protocol.error_codes import ErrorCode

from tests.support.kafka_test_client import ONLY, Client, KafkaTestClient, with_kafka_client

OUTSIDE = "outside"


async def requested_at(port: int, api: Api, version: int, requested: Values) -> Values:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    client.send(api.encode_request(7, version, "test", requested))
    size = int.from_bytes(await client.reader.readexactly(4), "big")
    _, values = api.decode_response(await client.reader.readexactly(size), version)
    client.close()
    return values


async def metadata_at(port: int) -> Values:
    return await requested_at(port, METADATA_API, 9, {"topics": None})


async def coordinators_at(port: int) -> list[tuple[ErrorCode, str, int]]:
    """By the version of one group, and by that of many."""
    one = await requested_at(port, FIND_COORDINATOR_API, 3, {"key": "g", "key_type": 0})
    many = await requested_at(port, FIND_COORDINATOR_API, 4, {"keys": ("g", "h"), "key_type": 0})
    return [(each["error"], each["host"], each["port"]) for each in (one, *many["coordinators"])]


def brokers_of(values: Values) -> list[tuple[str, int]]:
    return [(each["host"], each["port"]) for each in values["brokers"]]


def test_each_listener_tells_its_own_addresses(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        outside = await kafka_client.listener.start("127.0.0.1", 0, listener=OUTSIDE)
        kafka_client.push(addresses=(ListenerAddress(OUTSIDE, ONLY, "node.example", 30001),))
        assert brokers_of(await metadata_at(kafka_client.port)) == [
            ("127.0.0.1", kafka_client.port)
        ]
        assert brokers_of(await metadata_at(outside)) == [("node.example", 30001)]

    with_kafka_client(tmp_path, scenario)


def test_a_broker_without_an_address_there_is_none_and_leads_nothing(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        outside = await kafka_client.listener.start("127.0.0.1", 0, listener=OUTSIDE)
        found = await metadata_at(outside)
        (topic,) = found["topics"]
        (partition,) = topic["partitions"]
        assert (brokers_of(found), partition["leader"], partition["error"]) == (
            [],
            -1,
            ErrorCode.LISTENER_NOT_FOUND,
        )

    with_kafka_client(tmp_path, scenario)


def test_addresses_stay_when_a_new_controller_has_not_read_them_yet(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        outside = await kafka_client.listener.start("127.0.0.1", 0, listener=OUTSIDE)
        kafka_client.push(addresses=(ListenerAddress(OUTSIDE, ONLY, "node.example", 30001),))
        kafka_client.push()
        assert brokers_of(await metadata_at(outside)) == [("node.example", 30001)]

    with_kafka_client(tmp_path, scenario)


def test_coordinators_are_found_at_the_address_of_the_listener_that_was_asked(
    tmp_path: Path,
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        outside = await kafka_client.listener.start("127.0.0.1", 0, listener=OUTSIDE)
        other = await kafka_client.listener.start("127.0.0.1", 0, listener="other")
        addresses = (ListenerAddress(OUTSIDE, ONLY, "node.example", 30001),)
        kafka_client.push(addresses=addresses, has_groups=True)
        inside = (ErrorCode.NONE, "127.0.0.1", kafka_client.port)
        assert await coordinators_at(kafka_client.port) == [inside] * 3
        assert await coordinators_at(outside) == [(ErrorCode.NONE, "node.example", 30001)] * 3
        nowhere = (ErrorCode.COORDINATOR_NOT_AVAILABLE, "", -1)
        assert await coordinators_at(other) == [nowhere] * 3

    with_kafka_client(tmp_path, scenario)
