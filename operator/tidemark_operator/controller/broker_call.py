"""Describe a request of a broker and who answers it.

The sender's identity comes with the request, from its connection, and a message that names another
broker is rejected before it is answered.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from tidemark_protocol.controller_messages import decode, encode
from tidemark_protocol.ids import BrokerId

from tidemark_operator.security.broker_identity import BrokerIdentity

Request = TypeVar("Request")

# One message's body to its answer's, by its sender. Raises MalformedMessage, SenderRejected.
BrokerCall = Callable[[BrokerIdentity, bytes], Awaitable[bytes]]
NO_CALLS: Mapping[str, BrokerCall] = {}


def broker_call(kind: type[Request], answer: Callable[[Request], Awaitable[object]]) -> BrokerCall:
    """Return the call of one kind of request, which names the broker that sends it."""
    named_by = _named_by(kind)

    async def responded(sender: BrokerIdentity, body: bytes) -> bytes:
        request = decode(body, kind)
        sender.check(*named_by(request))
        return encode(await answer(request))

    return responded


def _named_by(kind: type[Any]) -> Callable[[Any], tuple[str, BrokerId]]:
    names = {field.name for field in fields(kind)}
    if "broker" in names:
        return lambda request: (request.broker.pool, request.broker.broker_id)
    if {"pool", "broker_id"} <= names:
        return lambda request: (request.pool, request.broker_id)
    raise TypeError(f"{kind.__name__}: expected a request that names its broker")
