"""Reads a topic as a member of a consumer group, by the consumers that brokers keep over HTTP.

What was printed is committed after that, so that records are printed again rather than lost when
this process ends in between. When a poll is broken off nobody knows what it handed out: the next
consumer goes on from what is committed.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from urllib.parse import quote

import msgspec
from tidemark_client.client import TidemarkClient
from tidemark_client.http_session import HttpResponse, HttpSession, TimeLimits
from tidemark_client.leader_lookup import NoResponse
from tidemark_client.metadata import UnreadableResponse
from tidemark_client.outcomes import BrokerError, ConsumedRecord
from tidemark_client.responses import read_problem, read_record_list, read_topic_ids

from tidemark_cli.partition_reader import (
    PAUSE_SECONDS,
    SAY_AFTER_SECONDS,
    SAY_AGAIN_SECONDS,
    TopicWatch,
)

CONTENT_TYPE = "application/vnd.kafka.v2+json"
POLL_MS = 1000
POLL_LIMITS = TimeLimits(POLL_MS / 1000 + 5.0)
LIMITS = TimeLimits(6.0)  # joining a group is not waited for, finding its coordinator is
END_LIMITS = TimeLimits(2.0)
COMMIT_TRIES = 3
COMMIT_PAUSE_SECONDS = 0.5
MOST_REJECTIONS = 3  # in a row, of consumers that are made again


class GroupReader:
    """`say` tells people. Close it in any case: its partitions go to others at once then."""

    def __init__(
        self,
        client: TidemarkClient,
        watch: TopicWatch,
        *,
        group: str,
        topic: str,
        reset: str,
        say: Callable[[str], None],
    ) -> None:
        """`reset`: where to begin without a committed offset, `earliest` or `latest`."""
        self._client = client
        self._watch = watch
        self._group = group
        self._topic = topic
        self._reset = reset
        self._say = say
        self._session = HttpSession(repeats_gets=False, authenticates=True)  # a poll has an effect
        self._consumer_url = ""

    async def pages(self) -> AsyncGenerator[tuple[ConsumedRecord, ...], None]:
        """Yield records as polls return them; an empty tuple where a poll returned none.

        Raises BrokerError, TopicGone, UnreadableResponse.
        """
        loop = asyncio.get_running_loop()
        say_at = loop.time() + SAY_AFTER_SECONDS
        rejections = 0
        while True:
            try:
                page = await self._poll()
            except BrokerError as rejected:
                rejections += not rejected.is_retriable
                if rejections >= MOST_REJECTIONS:
                    raise
                if loop.time() >= say_at:
                    say_at = loop.time() + SAY_AGAIN_SECONDS
                    self._say(f"group {self._group}: no records: {rejected}; retrying")
                await self._watch.check()
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            rejections, say_at = 0, loop.time() + SAY_AFTER_SECONDS
            if not page:
                await self._watch.check()
            yield page

    async def commit(self, records: Sequence[ConsumedRecord]) -> None:
        """Commit the offsets after these records."""
        offsets = {record.partition: record.offset + 1 for record in records}
        if not offsets or not self._consumer_url:
            return
        body = {
            "offsets": [
                {"topic": self._topic, "partition": partition, "offset": offset}
                for partition, offset in offsets.items()
            ]
        }
        for left in reversed(range(COMMIT_TRIES)):
            try:
                await self._requested("POST", "/offsets", body)
                return
            except BrokerError as rejected:
                if not left or not rejected.is_retriable:
                    places = ", ".join(f"{self._topic}-{partition}" for partition in offsets)
                    self._say(
                        f"{places}: offsets not committed, records may be read again: {rejected}"
                    )
                    return
            await asyncio.sleep(COMMIT_PAUSE_SECONDS)

    async def has_partitions(self) -> bool:
        try:
            response = await self._requested("GET", "/subscription")
            return bool(msgspec.json.decode(response.body)["partitions"])
        except (BrokerError, msgspec.DecodeError, KeyError, TypeError):
            return False

    async def close(self) -> None:
        await self._end()
        await self._session.close()

    async def _poll(self) -> tuple[ConsumedRecord, ...]:
        if not self._consumer_url:
            await self._begin()
        try:
            response = await self._requested("GET", f"/records?timeout={POLL_MS}")
            self._watch.note(read_topic_ids(response.headers).get(self._topic, ""))
            return read_record_list(response.body)
        except BrokerError as rejected:
            if not rejected.is_retriable or rejected.error == "NETWORK_EXCEPTION":
                await self._end()
            raise

    async def _begin(self) -> None:
        """Create a consumer at the first broker that accepts one.

        Raises BrokerError.
        """
        body = {"format": "binary", "auto.offset.reset": self._reset, "enable.auto.commit": False}
        rejection = BrokerError("LEADER_NOT_AVAILABLE", "no broker found", is_retriable=True)
        try:
            brokers = await self._client.brokers()
        except NoResponse as error:
            raise BrokerError("NETWORK_EXCEPTION", str(error), is_retriable=True) from error
        for url in brokers.values():
            try:
                path = f"{url}/consumers/{quote(self._group, safe='')}"
                response = await self._request("POST", path, body)
                self._consumer_url = str(msgspec.json.decode(response.body)["base_uri"])
                await self._requested("POST", "/subscription", {"topics": [self._topic]})
                return
            except BrokerError as error:
                rejection = error
                await self._end()
            except (msgspec.DecodeError, KeyError, TypeError) as error:
                raise UnreadableResponse(f"expected a consumer, found no {error}") from error
        raise rejection

    async def _end(self) -> None:
        """Leave the group; if that fails, the session times out soon."""
        url, self._consumer_url = self._consumer_url, ""
        if url:
            with contextlib.suppress(OSError):
                await self._session.delete(url, END_LIMITS)

    async def _requested(self, method: str, path: str, body: object = None) -> HttpResponse:
        return await self._request(method, self._consumer_url + path, body)

    async def _request(self, method: str, url: str, body: object = None) -> HttpResponse:
        """Send a request to the consumer's broker.

        Raises BrokerError.
        """
        try:
            if method == "GET":
                response = await self._session.get(url, POLL_LIMITS)
            else:
                data = msgspec.json.encode(body)
                response = await self._session.post(
                    url, LIMITS, body=data, content_type=CONTENT_TYPE
                )
        except OSError as error:
            text = f"{url}: {error or type(error).__name__}"
            raise BrokerError("NETWORK_EXCEPTION", text, is_retriable=True) from error
        if response.status in (200, 204):
            return response
        problem = read_problem(response.status, response.body)
        raise BrokerError(problem.error, problem.message, is_retriable=problem.is_retriable)
