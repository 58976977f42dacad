"""Every table of the broker's wire package, found by looking: a new one needs no word here."""

import importlib
import pkgutil

import tidemark_broker.kafka_wire.messages as messages
from tidemark_broker.kafka_wire.messages.schema import Api, Struct, TableReader, TableWriter

SIDES = ("request", "response")


def own_tables() -> list[Api]:
    found: dict[int, Api] = {}
    for module in pkgutil.iter_modules(messages.__path__):
        values = vars(importlib.import_module(f"{messages.__name__}.{module.name}")).values()
        found |= {value.api_key: value for value in values if isinstance(value, Api)}
    return [found[api_key] for api_key in sorted(found)]


def struct_of(api: Api, side: str) -> Struct:
    return api.request if side == "request" else api.response


def reread(api: Api, version: int, side: str, body: bytes) -> bytes:
    """A body read and written again. Raises MalformedFrame."""
    struct = struct_of(api, side)
    reader = TableReader(body, version, is_flexible=api.is_flexible(version))
    values = struct.read(reader)
    reader.expect_end()
    writer = TableWriter(version, is_flexible=api.is_flexible(version))
    struct.write(writer, values)
    return bytes(writer.out)
