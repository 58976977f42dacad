"""Read a topic as a member of a consumer group, by a consumer that a broker keeps over HTTP.

When a poll is broken off, it is unknown which records it returned: the next consumer continues from
what is committed.
"""

import contextlib
from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from tidemark_client.client import TidemarkClient
from tidemark_client.http_session import HttpResponse, HttpSession, TimeLimits
from tidemark_client.leader_lookup import NoResponse
from tidemark_client.metadata import UnreadableResponse
from tidemark_client.outcomes import BrokerError, ConsumedRecord
from tidemark_client.responses import read_problem, read_record_list, read_topic_ids

CONTENT_TYPE = "application/vnd.kafka.v2+json"
POLL_MS = 1000
POLL_LIMITS = TimeLimits(POLL_MS / 1000 + 5.0)
LIMITS = TimeLimits(6.0)  # joining a group is not waited for, finding its coordinator is
END_LIMITS = TimeLimits(2.0)


class GroupConsumer:
    """Close it in any case: its partitions go to others at once then."""

    def __init__(self, client: TidemarkClient, *, group: str, topic: str, reset: str) -> None:
        """`reset`: where to begin without a committed offset, `earliest` or `latest`."""
        self._client = client
        self._group = group
        self._topic = topic
        self._reset = reset
        self._session = HttpSession(repeats_gets=False, authenticates=True)  # a poll has an effect
        self._url = ""

    @property
    def is_open(self) -> bool:
        """Return whether there is a consumer: none before the first poll and after an error."""
        return bool(self._url)

    async def poll(self) -> tuple[tuple[ConsumedRecord, ...], str]:
        """Return records and the id of their topic; "" is not known.

        Raises BrokerError, UnreadableResponse.
        """
        if not self._url:
            await self._begin()
        try:
            response = await self._requested("GET", f"/records?timeout={POLL_MS}")
        except BrokerError as rejected:
            if not rejected.is_retriable or rejected.error == "NETWORK_EXCEPTION":
                await self._end()
            raise
        topic_id = read_topic_ids(response.headers).get(self._topic, "")
        return read_record_list(response.body), topic_id

    async def commit(self, positions: Mapping[int, int]) -> None:
        """Commit the next offset of each partition. Raises BrokerError."""
        offsets = [
            {"topic": self._topic, "partition": partition, "offset": offset}
            for partition, offset in positions.items()
        ]
        await self._requested("POST", "/offsets", {"offsets": offsets})

    async def has_partitions(self) -> bool:
        try:
            response = await self._requested("GET", "/subscription")
            return bool(msgspec.json.decode(response.body)["partitions"])
        except (BrokerError, msgspec.DecodeError, KeyError, TypeError):
            return False

    async def close(self) -> None:
        await self._end()
        await self._session.close()

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
                self._url = str(msgspec.json.decode(response.body)["base_uri"])
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
        url, self._url = self._url, ""
        if url:
            with contextlib.suppress(OSError):
                await self._session.delete(url, END_LIMITS)

    async def _requested(self, method: str, path: str, body: object = None) -> HttpResponse:
        return await self._request(method, self._url + path, body)

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
