"""Describe a request of a broker and who answers it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from tidemark_protocol.controller_messages import decode, encode

Request = TypeVar("Request")

# One message's body to its answer's. Raises MalformedMessage.
BrokerCall = Callable[[bytes], Awaitable[bytes]]
NO_CALLS: Mapping[str, BrokerCall] = {}


def broker_call(kind: type[Request], answer: Callable[[Request], Awaitable[object]]) -> BrokerCall:
    async def responded(body: bytes) -> bytes:
        return encode(await answer(decode(body, kind)))

    return responded
