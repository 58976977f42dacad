"""kafka-python's message classes as a peer: bodies read and written again, and random ones made."""

import random
from typing import Any

from kafka.protocol import admin, consumer, metadata, producer, sasl

MODULES = (consumer, producer, metadata, admin, sasl)


def message_class(name: str) -> Any:
    return next(vars(module)[name] for module in MODULES if name in vars(module))


def knows(name: str, version: int, side: str) -> bool:
    """Its newest version may be older than Kafka's."""
    return bool(version <= message_class(name + side.capitalize()).max_version)


def reread(name: str, version: int, side: str, body: bytes) -> bytes:
    kind = message_class(name + side.capitalize())
    message = kind.decode(body, version=version)
    message._header = None  # what it cannot write otherwise
    return bytes(message.encode(version=version))


def generate(seed: int, name: str, version: int, side: str, count: int) -> list[bytes]:
    """Where Kafka's own schemas cannot make any: those with a nullable struct have no place for
    the byte before it."""
    chance = random.Random(f"{seed} {name} {version} {side}")
    kind = message_class(name + side.capitalize())
    fields = kind._struct.fields.values()
    found = []
    for _ in range(count):
        message = kind(**{field.name: _value(field, version, chance) for field in fields})
        found.append(bytes(message.encode(version=version)))
    return found


def _value(field: Any, version: int, chance: random.Random) -> Any:
    if field.nullable_for_version_q(version) and chance.random() < 0.25:
        return None
    if field.is_struct_array():
        return [_struct(field, version, chance) for _ in range(chance.randrange(4))]
    if field.is_struct():
        return _struct(field, version, chance)
    if field.is_array():
        kind = field.type_str[2:]
        return [_simple(kind, chance) for _ in range(chance.randrange(4))]
    return _simple(field.type_str, chance)


def _struct(field: Any, version: int, chance: random.Random) -> Any:
    inner = field.fields.values()
    return field.data_class(**{one.name: _value(one, version, chance) for one in inner})


def _simple(kind: str, chance: random.Random) -> Any:
    match kind:
        case "string":
            return "" if chance.random() < 0.1 else f"é{chance.randrange(10**6)}"
        case "uuid":
            return f"{chance.getrandbits(128):032x}"
        case "bool":
            return chance.random() < 0.5
        case "bitfield":
            return {chance.randrange(31)}
    bits = int(kind.removeprefix("int"))
    return chance.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))
