"""Find leaders, and find new ones within milliseconds of a failure.

A caller that met a refused or reset connection, or waits suspiciously long, reports it here. While
such suspicions are open, two other brokers at a time are asked every 5 to 20 ms, and all waiting
callers are woken by the first response that brings a change. On the client's side the write gap
after a failover consists of this backoff.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urljoin

import msgspec

from tidemark_client.errors import CommandFailed
from tidemark_client.http_session import HttpSession, TimeLimits
from tidemark_client.metadata import (
    ClusterMetadata,
    TopicView,
    UnreadableResponse,
    read_brokers,
    read_topic,
    read_topic_names,
)

SHORTEST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.020
ASK_LIMITS = TimeLimits(0.5, 0.25)
MAX_REDIRECTS = 3
BROKERS_REQUESTED_AT_ONCE = 2
SUSPICION_SECONDS = 1.0  # how long an address is asked last
WATCH_SECONDS = 0.3  # how long the metadata is renewed after the last suspicion
MAX_RESPONSE_BYTES = 16 * 1024 * 1024


class NoResponse(Exception):
    """An error: no broker answered; the text names each address with its error."""


class LeaderLookup:
    """The metadata of one client, and the one task that renews it on suspicion."""

    def __init__(
        self,
        session: HttpSession,
        bootstrap_urls: tuple[str, ...],
        *,
        random_source: random.Random | None = None,
        now_seconds: Callable[[], float] | None = None,
    ) -> None:
        self.metadata = ClusterMetadata()
        self._session = session
        self._bootstrap_urls = tuple(url.rstrip("/") for url in bootstrap_urls)
        self._random = random_source or random.Random()
        self._now = now_seconds or asyncio.get_running_loop().time
        self._suspicions: dict[str, float] = {}  # URL -> when it stops being avoided
        self._watch_until = 0.0
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._suspected = asyncio.Event()
        self._changed = asyncio.Event()
        self._watcher = asyncio.create_task(self._watch(), name="leader-lookup")

    async def close(self) -> None:
        self._watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._watcher
        requesting = tuple(self._asking.values())
        for task in requesting:
            task.cancel()
        await asyncio.gather(*requesting, return_exceptions=True)

    def suspect(self, url: str) -> None:
        """Renew the metadata now by asking other brokers, because `url` failed or is slow."""
        self._suspicions[url] = self._now() + SUSPICION_SECONDS
        self._watch_until = self._now() + WATCH_SECONDS
        self._suspected.set()

    async def wait_for_change(self, longest_seconds: float) -> None:
        """Wait for the next change of the metadata, at most this long."""
        # Not wait_for: in Python 3.11 it swallows a cancellation that meets the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest_seconds):
                await self._changed.wait()

    async def learn_brokers(self) -> None:
        self._record(self.metadata.on_brokers(read_brokers(await self.ask("/brokers"))))

    async def learn_topic(self, topic: str) -> None:
        """Ask for a topic and add it to the metadata.

        Raises NoResponse, UnknownTopic.
        """
        self._record(self.metadata.on_topic(await self.ask_topic(topic)))

    async def ask_topic(self, topic: str) -> TopicView:
        """Return the topic as a broker describes it now.

        Raises NoResponse, UnknownTopic.
        """
        return read_topic(await self.ask(f"/topics/{topic}"))

    async def topic_names(self) -> tuple[str, ...]:
        return read_topic_names(await self.ask("/topics"))

    async def ask(self, path: str) -> Any:
        """Return the first good response of any broker; suspected ones are asked last."""
        reasons = []
        unknown_topic: UnknownTopic | None = None
        for url in self._addresses():
            try:
                return await self.ask_one(url, path)
            except UnknownTopic as error:  # this one may only lag behind: ask the others too
                unknown_topic = error
            except (OSError, UnreadableResponse) as error:  # a timeout is an OSError too
                reasons.append(f"{url}: {error or type(error).__name__}")
        if unknown_topic is not None:
            raise unknown_topic
        raise NoResponse("; ".join(reasons) or "no address given")

    async def ask_one(self, url: str, path: str) -> Any:
        response = await self._session.get(url + path, ASK_LIMITS, most_bytes=MAX_RESPONSE_BYTES)
        for _ in range(MAX_REDIRECTS):
            if response.status not in (307, 308):
                break
            location = urljoin(url + path, response.headers.get("location", ""))
            response = await self._session.get(location, ASK_LIMITS, most_bytes=MAX_RESPONSE_BYTES)
        data = response.body
        if response.status == 404 and path.startswith("/topics/"):
            raise UnknownTopic(path.removeprefix("/topics/").split("/")[0], _detail(data))
        if response.status == 401:
            raise AccessDenied(
                "The brokers ask who the client is.",
                expected="a token that they know",
                found=_detail(data),
                to_do="name a file with a token: --token-file, or TIDEMARK_TOKEN_FILE",
            )
        if response.status == 403:
            raise AccessDenied(_detail(data) or "The client may not do this.")
        if response.status != 200:
            raise UnreadableResponse(
                f"{path}: expected status 200, found {response.status}: {data[:200]!r}"
            )
        try:
            return msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            raise UnreadableResponse(f"{path}: expected JSON, found {data[:200]!r}") from error

    def _addresses(self) -> list[str]:
        """Return all addresses, trusted ones first, in random order within each half."""
        now = self._now()
        self._suspicions = {url: end for url, end in self._suspicions.items() if end > now}
        known = list(dict.fromkeys((*self.metadata.broker_urls.values(), *self._bootstrap_urls)))
        self._random.shuffle(known)
        return sorted(known, key=lambda url: url in self._suspicions)

    def _record(self, has_changed: bool) -> None:
        if has_changed:
            self._changed.set()
            self._changed = asyncio.Event()

    async def _watch(self) -> None:
        while True:
            await self._suspected.wait()
            await self._renew()
            if self._watch_until <= self._now():
                self._suspected.clear()
            await asyncio.sleep(self._random.uniform(SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS))

    async def _renew(self) -> None:
        """Ask a few brokers concurrently and use the first response.

        A broker that hangs (a frozen leader) delays no caller, and is not asked again while its
        request is open.
        """
        idle = [url for url in self._addresses() if url not in self._asking]
        for url in idle[:BROKERS_REQUESTED_AT_ONCE]:
            requesting = asyncio.create_task(self._renew_from(url), name=f"ask-{url}")
            self._asking[url] = requesting
            requesting.add_done_callback(partial(self._record_responded, url))
        if self._asking:
            await asyncio.wait(self._asking.values(), return_when=asyncio.FIRST_COMPLETED)

    def _record_responded(self, url: str, _: "asyncio.Task[None]") -> None:
        del self._asking[url]

    async def _renew_from(self, url: str) -> None:
        try:
            for topic in tuple(self.metadata.topics):
                view = read_topic(await self.ask_one(url, f"/topics/{topic}"))
                self._record(self.metadata.on_topic(view))
                leaders = {partition.leader for partition in view.partitions}
                if leaders - {-1} - self.metadata.broker_urls.keys():
                    brokers = read_brokers(await self.ask_one(url, "/brokers"))
                    self._record(self.metadata.on_brokers(brokers))
        except (OSError, UnreadableResponse, UnknownTopic):
            self._suspicions[url] = self._now() + SUSPICION_SECONDS / 2


class AccessDenied(CommandFailed):
    """An error: the client is not known, or may not do this; another try changes nothing."""


class UnknownTopic(Exception):
    """An error: a broker says that the topic does not exist."""

    def __init__(self, topic: str, detail: str = "") -> None:
        super().__init__(detail or f"topic {topic!r} does not exist")
        self.topic = topic


def _detail(data: bytes) -> str:
    """Return the detail of a problem document (RFC 9457), or ""."""
    try:
        problem = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return ""
    return str(problem.get("detail", "")) if isinstance(problem, dict) else ""
