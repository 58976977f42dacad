"""Collect the groups of all brokers into one list.

Brokers are asked one after the other and passed on as they answer, so one response is held at a
time. One that does not answer is named: its groups are missing.
"""

from collections.abc import AsyncIterator

import aiohttp
import msgspec

from tidemark_broker.http.broker_view import BrokerView
from tidemark_broker.http.request import AUTHORIZATION
from tidemark_broker.security.peer_addresses import PeerAddress

MAX_RESPONSE_BYTES = 16 * 1024 * 1024
CONNECT_SECONDS = 1.0
RESPONSE_SECONDS = 5.0


class _Groups(msgspec.Struct):
    groups: list[msgspec.Raw]
    is_loading: bool


async def others(
    view: BrokerView, authorization: bytes
) -> AsyncIterator[tuple[int, _Groups | None]]:
    """Yield the groups of each other broker that is not fenced; None: it did not answer.

    `authorization` is the client's own header.
    """
    headers = {AUTHORIZATION.decode(): authorization.decode("latin-1")} if authorization else None
    timeout = aiohttp.ClientTimeout(total=RESPONSE_SECONDS, sock_connect=CONNECT_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
        for broker_id, broker in sorted(view.partitions.metadata.brokers.items()):
            if broker_id != view.broker_id and not broker.is_fenced:
                address = view.addresses.http(broker_id, broker.endpoints)
                yield broker_id, await _of(session, address)


async def _of(session: aiohttp.ClientSession, address: PeerAddress) -> _Groups | None:
    body = bytearray()
    url = f"{address.url}/groups?of=broker"
    try:
        async with session.get(url, **address.request_options()) as response:
            if response.status != 200:
                return None
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_RESPONSE_BYTES:
                    return None
        return msgspec.json.decode(body, type=_Groups)
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
        return None
