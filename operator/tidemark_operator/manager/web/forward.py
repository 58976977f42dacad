"""Forward a page's requests from an operator on standby to the one that leads."""

import asyncio
from collections.abc import Callable

import aiohttp
from aiohttp import web
from tidemark_protocol.token_file import TokenFile

from tidemark_operator.manager.web.routes import leader_sentence, problem
from tidemark_operator.manager.web.static_files import SAFE_HEADERS

FORWARDED = "X-Tidemark-Forwarded"  # a request that was forwarded once is not forwarded again
CONNECT_SECONDS = 2.0
READ_SECONDS = 10.0  # a stream has a beat each second
WRITE_SECONDS = 10.0
MAX_FORWARDED = 64
# An action's Origin was checked here; the leader has another one.
TAKEN_ALONG = ("Last-Event-ID", "X-Tidemark-Action")
PASSED_ON = ("Content-Type", "Cache-Control")


class ForwardToLeader:
    def __init__(self, leader_address: Callable[[], str], port: int, token: TokenFile) -> None:
        """Create it; the leader serves the same routes at `port` of its address.

        `token` is this operator's: the leader trusts it to have checked who asks.
        """
        self._leader_address = leader_address
        self._port = port
        self._token = token
        self._under_way = 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        address = self._leader_address()
        if not address or FORWARDED in request.headers:
            return problem(503, f"this operator is on standby: {leader_sentence(address)}")
        if self._under_way >= MAX_FORWARDED:
            return problem(503, f"{MAX_FORWARDED} pages are open, no more are forwarded")
        self._under_way += 1
        try:
            return await self._forward(request, address)
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            why = str(error) or type(error).__name__
            return problem(
                502, f"this operator is on standby, and {address} does not answer: {why}"
            )
        finally:
            self._under_way -= 1

    async def _forward(self, request: web.Request, address: str) -> web.StreamResponse:
        url = f"http://{address.rpartition(':')[0]}:{self._port}{request.path_qs}"
        headers = {FORWARDED: "1", **self._token.headers()}
        headers |= {name: request.headers[name] for name in TAKEN_ALONG if name in request.headers}
        body = await request.read() if request.method == "POST" else None
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.request(
                request.method, url, headers=headers, data=body, allow_redirects=False
            ) as answer,
        ):
            if answer.status == 401:
                self._token.expire()
            passed_on = {name: answer.headers[name] for name in PASSED_ON if name in answer.headers}
            response = web.StreamResponse(
                status=answer.status, headers={**SAFE_HEADERS, **passed_on}
            )
            await response.prepare(request)
            try:
                async for body in answer.content.iter_any():
                    async with asyncio.timeout(WRITE_SECONDS):
                        await response.write(body)
            except (aiohttp.ClientError, TimeoutError, ConnectionError):
                if request.transport is not None:
                    request.transport.abort()  # the page sees that it ended, and connects again
            return response
