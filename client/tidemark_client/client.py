"""Produce and consume over Tidemark's HTTP API without ever guessing an outcome.

Only what was certainly not written is sent again: a connection that could not be made, a 307 to the
leader, a problem whose outcome is `not_written` and which is retriable. A record whose outcome is
unknown is reported as such and never sent again, so an acknowledged record is in the log once.
Numbered records (idempotent_producer.py) are sent again in doubt too: brokers recognise them.

A consumer with a rack reads each partition from the replica that its leader names (KIP-392). Such a
preference ends with the first error, and after some time: then the leader is asked again, because
it may be nearer itself by then, or know a nearer replica.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import msgspec

from tidemark_client.http_session import HttpResponse, HttpSession, NotConnected, TimeLimits
from tidemark_client.leader_lookup import LeaderLookup, NoResponse, UnknownTopic
from tidemark_client.metadata import TopicView, UnreadableResponse
from tidemark_client.outcomes import (
    Acknowledged,
    BrokerError,
    OffsetRange,
    Outcome,
    OutgoingRecord,
    ProducerIdentity,
    RecordPage,
    Rejected,
    ReplicaDigest,
    Unknown,
)
from tidemark_client.record_batches import CONTENT_TYPE, encode_batch
from tidemark_client.responses import (
    Redirected,
    read_offset_range,
    read_problem,
    read_produce_response,
    read_producer,
    read_records,
    read_replica,
)

PREFERENCE_SECONDS = 300.0  # Kafka: metadata.max.age.ms


class RackAwareReads:
    """The preferred read replicas; `now_seconds` is monotonic."""

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        self._now = now_seconds
        self._places: dict[tuple[str, int], tuple[str, float]] = {}

    def note(self, topic: str, partition: int, url: str) -> None:
        self._places[topic, partition] = (url, self._now() + PREFERENCE_SECONDS)

    def forget(self, topic: str, partition: int) -> None:
        self._places.pop((topic, partition), None)

    def url(self, topic: str, partition: int) -> str | None:
        """Return the URL of the preferred replica, or None to ask the leader."""
        url, until = self._places.get((topic, partition), (None, 0.0))
        return url if self._now() < until else None


PREFERRED_REPLICA = "tidemark-preferred-read-replica"
CONNECT_TIMEOUT_SECONDS = 0.25
SLOW_SECONDS = 0.1  # an answer that takes longer makes us ask others who leads
STILL_SLOW_SECONDS = 0.25  # shorter than a suspicion lasts, so that the asking goes on
RETRY_PAUSE_SECONDS = 0.1  # at most: a change of the metadata ends it at once
INIT_PRODUCER_SECONDS = 6.0  # brokers wait up to 5 s for their controller
ATTEMPT_SECONDS = 1.0  # of an idempotent producer: a leader that hangs is not waited for longer
MAX_REDIRECTS = 2  # in a row: two brokers that lag behind may each name the other
RESPONSE_MARGIN_SECONDS = 1.0  # how much longer than the broker we wait: it should tell, not we
_REJECTED_BY_NUMBER = frozenset({"OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH"})


@dataclass(frozen=True, slots=True)
class ClientSettings:
    acks: str = "all"
    timeout_ms: int = 5000  # deadline of one produce, retries included
    max_wait_ms: int = 500  # long poll of a fetch
    max_bytes: int = 1024 * 1024
    rack: str | None = None  # read from an in-sync replica of this rack where there is one


@dataclass(frozen=True, slots=True)
class _Retry:
    """A result that is worth another attempt; certainly not written, unless `is_in_doubt`."""

    error: str
    message: str
    leader_url: str | None = None
    is_in_doubt: bool = False


class TidemarkClient:
    """A client for any number of tasks of one loop.

    Use it as `async with TidemarkClient(["http://..."]) as client`.
    """

    def __init__(
        self, bootstrap_urls: Sequence[str], *, settings: ClientSettings | None = None
    ) -> None:
        self.settings = settings or ClientSettings()
        self._bootstrap_urls = tuple(bootstrap_urls)

    async def __aenter__(self) -> Self:
        self._session = HttpSession(authenticates=True)
        self.lookup = LeaderLookup(self._session, self._bootstrap_urls)
        self._preferred = RackAwareReads(asyncio.get_running_loop().time)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.lookup.close()
        await self._session.close()

    async def topics(self) -> tuple[str, ...]:
        return await self.lookup.topic_names()

    async def brokers(self) -> dict[int, str]:
        """Return the HTTP URL of each broker id."""
        await self.lookup.learn_brokers()
        return dict(self.lookup.metadata.broker_urls)

    async def topic(self, topic: str) -> TopicView:
        """Ask a broker for the topic now.

        Raises UnknownTopic, NoResponse.
        """
        if not self.lookup.metadata.broker_urls:
            await self.lookup.learn_brokers()
        await self.lookup.learn_topic(topic)
        view = self.lookup.metadata.topic(topic)
        assert view is not None
        return view

    async def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[OutgoingRecord],
        *,
        acks: str | None = None,
        timeout_ms: int | None = None,
        numbered_as: tuple[ProducerIdentity, int] | None = None,
    ) -> Outcome:
        """Send the records as one batch and return the outcome; never raise for it.

        `numbered_as` is an idempotent producer and the sequence of the first record.
        """
        body = encode_batch(records, now_ms=int(time.time() * 1000), numbered_as=numbered_as)
        is_in_doubt = False
        acks = acks or self.settings.acks
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (timeout_ms or self.settings.timeout_ms) / 1000
        url: str | None = None
        redirects = 0
        last = _Retry("LEADER_NOT_AVAILABLE", "no leader found")
        while (left_seconds := deadline - loop.time()) > 0:
            url = url or await self._leader_url(topic, partition, left_seconds)
            if url is None:
                await self.lookup.wait_for_change(RETRY_PAUSE_SECONDS)
                continue
            path = f"/topics/{topic}/partitions/{partition}"
            if numbered_as is None:
                response = await self._send(url, path, body, acks=acks, left_seconds=left_seconds)
            else:
                left_seconds = min(left_seconds, ATTEMPT_SECONDS)
                sending = self._send(url, path, body, acks=acks, left_seconds=left_seconds)
                response = await self._unless_led_elsewhere((topic, partition), url, sending)
                response = _again_if_in_doubt(response)
            if not isinstance(response, _Retry):
                return _with_doubt(response, is_in_doubt)
            is_in_doubt = is_in_doubt or response.is_in_doubt
            last, tried, url = response, url, response.leader_url
            self.lookup.suspect(tried)
            redirects = redirects + 1 if url else 0
            if url is None or url == tried or redirects > MAX_REDIRECTS:
                url, redirects = None, 0
                if self.lookup.metadata.leader_url(topic, partition) == tried:
                    await self.lookup.wait_for_change(RETRY_PAUSE_SECONDS)
        message = f"timed out, not acknowledged: {last.message}"
        return _with_doubt(Rejected(last.error, message), is_in_doubt)

    async def init_producer(self, known: ProducerIdentity | None = None) -> ProducerIdentity:
        """Return a new producer identity, or the next epoch of a known one.

        Raises BrokerError.
        """
        body = b"" if known is None else msgspec.json.encode(known)
        rejection = BrokerError("LEADER_NOT_AVAILABLE", "no broker found", is_retriable=True)
        urls = (*self.lookup.metadata.broker_urls.values(), *self._bootstrap_urls)
        for url in dict.fromkeys(url.rstrip("/") for url in urls):
            try:
                limits = TimeLimits(INIT_PRODUCER_SECONDS, CONNECT_TIMEOUT_SECONDS)
                response = await self._session.post(f"{url}/producers", limits, body=body)
                if response.status == 200:
                    return read_producer(response.body)
                problem = read_problem(response.status, response.body)
                rejection = BrokerError(
                    problem.error, problem.message, is_retriable=problem.is_retriable
                )
            except (OSError, UnreadableResponse) as error:  # a timeout is an OSError too
                text = f"{url}: {error or type(error).__name__}"
                rejection = BrokerError("NETWORK_EXCEPTION", text, is_retriable=True)
        raise rejection

    async def fetch(
        self, topic: str, partition: int, offset: int, *, max_wait_ms: int | None = None
    ) -> RecordPage:
        """Fetch by one long poll at the leader, or at the replica in our rack that it names.

        Raises BrokerError, also for lost connections.
        """
        wait_ms = self.settings.max_wait_ms if max_wait_ms is None else max_wait_ms
        path = (
            f"/topics/{topic}/partitions/{partition}/records"
            f"?offset={offset}&max_bytes={self.settings.max_bytes}&max_wait_ms={wait_ms}"
        )
        headers, body = await self._read_preferred_replica(topic, partition, path, wait_ms / 1000)
        return read_records(offset, headers, body)

    async def offsets(self, topic: str, partition: int) -> OffsetRange:
        path = f"/topics/{topic}/partitions/{partition}/offsets"
        _, body = await self._read_at_leader(topic, partition, path, 1.0)
        return read_offset_range(body)

    async def replica(
        self, broker_url: str, topic: str, partition: int, *, to_offset: int
    ) -> ReplicaDigest:
        """Return the digest of one broker's replica of a partition, whatever its role.

        Raises BrokerError.
        """
        path = f"/topics/{topic}/partitions/{partition}/replica?to_offset={to_offset}"
        _, body = await self._read_at(broker_url, path, 30.0)
        return read_replica(body)

    async def _leader_url(self, topic: str, partition: int, left_seconds: float) -> str | None:
        """Return the leader's URL as far as known; ask when nothing is known yet."""
        url = self.lookup.metadata.leader_url(topic, partition)
        if url is not None:
            return url
        if self.lookup.metadata.topic(topic) is None:
            try:
                async with asyncio.timeout(left_seconds):
                    await self.topic(topic)
            except (NoResponse, UnknownTopic, TimeoutError):
                return None
            return self.lookup.metadata.leader_url(topic, partition)
        self.lookup.suspect("")  # without a leader: keep asking
        return None

    async def _unless_led_elsewhere(
        self,
        topic_partition: tuple[str, int],
        url: str,
        attempt: "Coroutine[Any, Any, Outcome | _Retry]",
    ) -> "Outcome | _Retry":
        """Cancel an attempt that hangs as soon as another broker is known to lead.

        The same numbers may be sent there.
        """
        sending = asyncio.create_task(attempt)
        try:
            while True:
                change = asyncio.create_task(self.lookup.wait_for_change(STILL_SLOW_SECONDS))
                await asyncio.wait({sending, change}, return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
                if sending.done():
                    return sending.result()
                leader = self.lookup.metadata.leader_url(*topic_partition)
                if leader not in (None, url):
                    message = f"{url} does not respond, and {leader} is the leader"
                    return _Retry("NETWORK_EXCEPTION", message, leader, is_in_doubt=True)
                self.lookup.suspect(url)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send(
        self, url: str, path: str, body: bytes, *, acks: str, left_seconds: float
    ) -> Outcome | _Retry:
        """Make one attempt."""
        loop = asyncio.get_running_loop()
        slow = loop.call_later(SLOW_SECONDS, self.lookup.suspect, url)
        try:
            response = await self._session.post(
                f"{url}{path}?acks={acks}&timeout_ms={_broker_timeout_ms(left_seconds)}",
                TimeLimits(
                    left_seconds + RESPONSE_MARGIN_SECONDS,
                    min(CONNECT_TIMEOUT_SECONDS, left_seconds),
                ),
                body=body,
                content_type=CONTENT_TYPE,
            )
            return _read_attempt(url, response, acks)
        except NotConnected as error:
            return _Retry("NETWORK_EXCEPTION", f"{url}: {error}")
        except OSError as error:  # a timeout is one too
            self.lookup.suspect(url)
            return Unknown("NETWORK_EXCEPTION", f"{url}: {error or type(error).__name__}")
        finally:
            slow.cancel()

    async def _read_preferred_replica(
        self, topic: str, partition: int, path: str, wait_seconds: float
    ) -> tuple[Mapping[str, str], bytes]:
        if self.settings.rack is None:
            return await self._read_at_leader(topic, partition, path, wait_seconds)
        path_with_rack = f"{path}&rack={quote(self.settings.rack, safe='')}"
        near = self._preferred.url(topic, partition)
        if near is None:
            leader = await self._leader_url(topic, partition, RESPONSE_MARGIN_SECONDS)
            if leader is not None:
                try:
                    return await self._read_at(leader, path_with_rack, wait_seconds)
                except Redirected as sent:
                    if sent.is_to_nearer:
                        near = sent.url
                        self._preferred.note(topic, partition, near)
        if near is not None:
            try:
                return await self._read_at(near, path_with_rack, wait_seconds)
            except (Redirected, BrokerError):
                self._preferred.forget(topic, partition)
        # Without the rack: the leader itself answers, whatever it thinks of the others.
        return await self._read_at_leader(topic, partition, path, wait_seconds)

    async def _read_at_leader(
        self, topic: str, partition: int, path: str, wait_seconds: float
    ) -> tuple[Mapping[str, str], bytes]:
        url = await self._leader_url(topic, partition, RESPONSE_MARGIN_SECONDS)
        if url is None:
            await self.lookup.wait_for_change(RETRY_PAUSE_SECONDS)
            raise BrokerError(
                "LEADER_NOT_AVAILABLE", f"no leader of {topic}-{partition}", is_retriable=True
            )
        try:
            return await self._read_at(url, path, wait_seconds)
        except Redirected as elsewhere:
            self.lookup.suspect(url)
            try:
                return await self._read_at(elsewhere.url, path, wait_seconds)
            except Redirected as again:  # both lag behind: the next try knows more
                raise BrokerError(
                    "NOT_LEADER_OR_FOLLOWER", str(again), is_retriable=True
                ) from again

    async def _read_at(
        self, url: str, path: str, wait_seconds: float
    ) -> tuple[Mapping[str, str], bytes]:
        try:
            limits = TimeLimits(wait_seconds + RESPONSE_MARGIN_SECONDS, CONNECT_TIMEOUT_SECONDS)
            response = await self._session.get(url + path, limits)
        except OSError as error:  # a timeout is one too
            self.lookup.suspect(url)
            raise BrokerError(
                "NETWORK_EXCEPTION", f"{url}: {error or type(error).__name__}", is_retriable=True
            ) from error
        if response.status == 200:
            return response.headers, response.body
        if response.status == 307:
            location = response.headers.get("location", "")
            raise Redirected(location, url, is_to_nearer=PREFERRED_REPLICA in response.headers)
        problem = read_problem(response.status, response.body)
        raise BrokerError(problem.error, problem.message, is_retriable=problem.is_retriable)


def _broker_timeout_ms(left_seconds: float) -> int:
    """Round the timeout to steps, because brokers cache decoded query strings."""
    left_ms = max(1, int(left_seconds * 1000))
    return left_ms if left_ms < 100 else left_ms - left_ms % 100


def _again_if_in_doubt(answer: Outcome | _Retry) -> Outcome | _Retry:
    """Return a retry for an unknown outcome of numbered records.

    A broker that has the batch already says so; it rejects one that does not follow.
    """
    if isinstance(answer, Unknown) and answer.error not in _REJECTED_BY_NUMBER:
        return _Retry(answer.error, answer.message, is_in_doubt=True)
    return answer


def _with_doubt(outcome: Outcome, is_in_doubt: bool) -> Outcome:
    """Return Unknown for a rejection if an earlier attempt may have been written."""
    if is_in_doubt and isinstance(outcome, Rejected):
        return Unknown(outcome.error, outcome.message)
    return outcome


def _read_attempt(url: str, response: HttpResponse, acks: str) -> Outcome | _Retry:
    if response.status == 307:
        location = Redirected(response.headers.get("location", ""), url)
        return _Retry("NOT_LEADER_OR_FOLLOWER", f"{url} is not the leader", location.url or None)
    if response.status == 200:
        answer = read_produce_response(response.body, acks=acks)
        if answer.error is None:
            return Acknowledged(answer.offset, url)
        problem = answer.error
    else:
        problem = read_problem(response.status, response.body)
    if not problem.is_certainly_not_written:
        return Unknown(problem.error, problem.message)
    if problem.is_retriable:
        return _Retry(problem.error, problem.message)
    return Rejected(problem.error, problem.message)
