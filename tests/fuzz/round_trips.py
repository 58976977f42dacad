"""Random messages of every API in every version through our codecs, Kafka's own and kafka-python's.

All three must write the very bytes that they read. For what is coded by hand (Produce, Fetch) see
test_hand_written_codecs.py.
"""

from collections.abc import Iterator

from tidemark_broker.kafka_wire.messages.metadata import DESCRIBE_TOPIC_PARTITIONS_API
from tidemark_broker.kafka_wire.messages.primitives import MalformedFrame
from tidemark_broker.kafka_wire.messages.schema import Api

from tests.fuzz import own_tables, python_peer
from tests.fuzz.java_peer import JavaPeer

WITH_NULLABLE_STRUCTS = {DESCRIBE_TOPIC_PARTITIONS_API.api_key}


def messages(java: JavaPeer, seed: int, count: int) -> Iterator[tuple[Api, int, str, bytes]]:
    for api in own_tables.own_tables():
        for version in range(api.min_version, api.max_version + 1):
            for side in own_tables.SIDES:
                if api.api_key in WITH_NULLABLE_STRUCTS:
                    made = python_peer.generate(seed, api.name, version, side, count)
                else:
                    made = java.generate(seed, api.api_key, version, side, count)
                for body in made:
                    yield api, version, side, body


def disagreements(java: JavaPeer, seed: int, count: int) -> Iterator[str]:
    """`count` messages of each kind. A sentence for each that somebody reads otherwise."""
    for api, version, side, body in messages(java, seed, count):
        readings: dict[str, bytes | str] = {}
        if python_peer.knows(api.name, version, side):
            readings["kafka-python"] = python_peer.reread(api.name, version, side, body)
        if api.api_key in WITH_NULLABLE_STRUCTS:
            readings["Kafka"] = java.reread(api.api_key, version, side, body)
        try:
            readings["Tidemark"] = own_tables.reread(api, version, side, body)
        except MalformedFrame as error:
            readings["Tidemark"] = str(error).encode()
        for who, reading in readings.items():
            if reading != body:
                found = reading.hex() if isinstance(reading, bytes) else reading
                yield (
                    f"seed {seed}: {api.name} v{version} {side}: {who} has {found} for {body.hex()}"
                )
