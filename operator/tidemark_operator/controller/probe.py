"""Probe a suspected broker by HTTP GET /healthz at its own address (S19).

Never by a Service or a name. A refused connection, or a response of another incarnation, is a
refusal; no response in time, a certificate of another broker, or any other failure is not
conclusive.
"""

import asyncio
from enum import Enum
from typing import Protocol

import aiohttp
import msgspec
from tidemark_protocol.controller_messages import Endpoints
from tidemark_protocol.ids import BrokerId

from tidemark_operator.security.broker_trust import BrokerTrust

MAX_HEALTH_BYTES = 64 * 1024


class ProbeVerdict(Enum):
    ALIVE = "alive"
    REFUSED = "refused"
    NO_RESPONSE = "no answer"


class Probe(Protocol):
    async def __call__(
        self, pool: str, broker_id: BrokerId, endpoints: Endpoints, incarnation: str
    ) -> ProbeVerdict: ...


class HttpProbe:
    """The probe used in production."""

    def __init__(self, timeout_ms: int, trust: BrokerTrust | None = None) -> None:
        self._timeout_ms = timeout_ms
        self._trust = trust or BrokerTrust()

    async def __call__(
        self, pool: str, broker_id: BrokerId, endpoints: Endpoints, incarnation: str
    ) -> ProbeVerdict:
        url = f"{self._trust.http_url(endpoints)}/healthz"
        options = self._trust.options(pool, broker_id, endpoints)
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                # A connection of its own: a pooled one would say how things were.
                async with (
                    aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http,
                    http.get(url, **options) as response,
                ):
                    body = b""
                    async for chunk in response.content.iter_any():
                        body += chunk
                        if len(body) > MAX_HEALTH_BYTES:
                            return ProbeVerdict.NO_RESPONSE
        except aiohttp.ClientConnectorError as error:
            is_rejected = isinstance(error.os_error, ConnectionRefusedError)
            return ProbeVerdict.REFUSED if is_rejected else ProbeVerdict.NO_RESPONSE
        except (TimeoutError, aiohttp.ClientError, OSError):
            return ProbeVerdict.NO_RESPONSE
        try:
            found = msgspec.json.decode(body, type=dict[str, object]).get("incarnation")
        except (msgspec.DecodeError, msgspec.ValidationError):
            return ProbeVerdict.NO_RESPONSE
        return ProbeVerdict.ALIVE if found == incarnation else ProbeVerdict.REFUSED
