"""Read offsets and consumer groups from brokers for the pages that show them, by bound.

Only what a page has open is read. A reading serves all pages for a while, so the brokers' cost does
not depend on how many pages there are.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from tidemark_protocol.controller_messages import Endpoints
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import PartitionState
from yarl import URL

from tidemark_operator.controller.core.views import BrokerView, TopicView
from tidemark_operator.manager.web.documents import Document
from tidemark_operator.security.broker_trust import BrokerTrust

PARTITIONS_PER_READ = 16
GROUP_PARTITIONS = 64  # of which the end is read; the lag of others is not known
MAX_GROUPS = 1000
READ_SECONDS = 2.0
GROUPS_SECONDS = 5.0
FRESH_SECONDS = 0.9
GROUPS_FRESH_SECONDS = 3.0
MAX_KEPT = 16  # different readings
MAX_REPLICA_BYTES = 64 * 1024
MAX_GROUPS_BYTES = 4 * 1024 * 1024
CONNECTIONS = 12


class TooManyReads(Exception):
    """Too many different topics are open; the text is for the person who opens one more."""


class Follower(msgspec.Struct):
    broker_id: int
    log_end_offset: int  # -1: it has not fetched yet


class Replica(msgspec.Struct):
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    followers: list[Follower] = []  # of the leader; brokers of an earlier version do not say


class Committed(msgspec.Struct):
    topic: str
    partition: int
    offset: int


class Group(msgspec.Struct):
    group: str
    state: str
    members: list[msgspec.Raw]
    offsets: list[Committed]


class Groups(msgspec.Struct):
    groups: list[Group]


Read = TypeVar("Read", Replica, Groups)


class Target(NamedTuple):
    """A broker that is asked."""

    pool: str
    broker_id: BrokerId
    endpoints: Endpoints


FindTopic = Callable[[str], TopicView | None]


class BrokerReads:
    def __init__(
        self,
        trust: BrokerTrust | None = None,
        authorization: Callable[[str, BrokerId], Mapping[str, str]] = lambda pool, broker_id: {},
    ) -> None:
        """Create it; `authorization` returns the header of a request to a broker of a pool."""
        self._trust = trust or BrokerTrust()
        self._authorization = authorization
        self._readings: dict[tuple[object, ...], tuple[float, asyncio.Task[list[Document]]]] = {}
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        for _, reading in self._readings.values():
            reading.cancel()
        self._readings.clear()
        if self._session is not None:
            await self._session.close()

    async def replicas(
        self, pool: str, view: TopicView, brokers: Sequence[BrokerView], first: int
    ) -> list[Document]:
        """Return offsets of replicas of some partitions from `first` on. Raises TooManyReads."""
        states = [
            state
            for state in view.partitions
            if first <= state.partition < first + PARTITIONS_PER_READ
        ]
        active = _active(pool, brokers)
        key = ("replicas", pool, view.topic.topic_id, first)

        async def read() -> list[Document]:
            each = (self._partition(view.topic.topic, state, active) for state in states)
            return list(await asyncio.gather(*each))

        return await self._once(key, FRESH_SECONDS, read)

    async def leaders(
        self,
        pool: str,
        partitions: Sequence[tuple[str, PartitionState]],
        brokers: Sequence[BrokerView],
    ) -> list[Replica | None]:
        """Return what the leader of each partition knows; None if it does not answer."""
        active = _active(pool, brokers)
        led = ((topic, each.partition, active.get(each.leader)) for topic, each in partitions)
        return list(await asyncio.gather(*(self._replica(*each) for each in led)))

    async def groups(
        self, pool: str, find: FindTopic, brokers: Sequence[BrokerView], topic: str
    ) -> list[Document]:
        """Return consumer groups, with offsets of that topic or of all. Raises TooManyReads."""
        active = _active(pool, brokers)

        async def read() -> list[Document]:
            return await self._groups(active, find, topic)

        return await self._once(("groups", pool, topic), GROUPS_FRESH_SECONDS, read)

    async def _once(
        self,
        key: tuple[object, ...],
        fresh_seconds: float,
        read: Callable[[], Coroutine[Any, Any, list[Document]]],
    ) -> list[Document]:
        """Return a reading that is fresh or under way, else begin one."""
        now_s = time.monotonic()
        for kept, (until_s, reading) in tuple(self._readings.items()):
            if reading.done() and now_s > until_s:
                del self._readings[kept]
        if key not in self._readings:
            if len(self._readings) >= MAX_KEPT:
                raise TooManyReads(
                    f"offsets of {MAX_KEPT} topics are being read, no more are: try again"
                )
            self._readings[key] = now_s + fresh_seconds, asyncio.create_task(read())
        return await asyncio.shield(self._readings[key][1])

    async def _partition(
        self, topic: str, state: PartitionState, active: Mapping[BrokerId, Target]
    ) -> Document:
        found = await asyncio.gather(
            *(self._replica(topic, state.partition, active.get(i)) for i in state.replicas)
        )
        return {
            "partition": state.partition,
            "replicas": [
                {
                    "broker": broker_id,
                    "start": replica.log_start_offset,
                    "watermark": replica.high_watermark,
                    "end": replica.log_end_offset,
                }
                for broker_id, replica in zip(state.replicas, found, strict=True)
                if replica is not None
            ],
        }

    async def _replica(self, topic: str, partition: int, broker: Target | None) -> Replica | None:
        path = f"/topics/{quote(topic, safe='')}/partitions/{partition}/replica"
        body = await self._get(broker, path, MAX_REPLICA_BYTES, READ_SECONDS)
        return _decoded(body, Replica)

    async def _groups(
        self, active: Mapping[BrokerId, Target], find: FindTopic, topic: str
    ) -> list[Document]:
        found: Groups | None = None
        for broker in active.values():
            body = await self._get(broker, "/groups", MAX_GROUPS_BYTES, GROUPS_SECONDS)
            found = _decoded(body, Groups)
            if found is not None:
                break
        groups = [] if found is None else found.groups[:MAX_GROUPS]
        ends = await self._ends(active, find, partitions_of(groups, topic))
        return [_group_document(group, ends, topic) for group in groups]

    async def _ends(
        self,
        active: Mapping[BrokerId, Target],
        find: FindTopic,
        partitions: Sequence[tuple[str, int]],
    ) -> dict[tuple[str, int], int]:
        """Return high watermarks, as far as their leaders answer."""
        leaders: dict[tuple[str, int], BrokerId] = {}
        for name in dict.fromkeys(topic for topic, _ in partitions):
            view = find(name)
            if view is not None:
                leaders |= {(name, state.partition): state.leader for state in view.partitions}
        led = [(each, active.get(leaders[each])) for each in partitions if each in leaders]
        found = await asyncio.gather(*(self._replica(*each, broker) for each, broker in led))
        pairs = zip(led, found, strict=True)
        return {each: replica.high_watermark for (each, _), replica in pairs if replica is not None}

    async def _get(
        self, broker: Target | None, path: str, most: int, seconds: float
    ) -> bytes | None:
        """Return the body of a broker's answer, or None without one in time."""
        if broker is None:
            return None
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        pool, broker_id, endpoints = broker
        url = URL(f"{self._trust.http_url(endpoints)}{path}", encoded=True)
        options = self._trust.options(pool, broker_id, endpoints)
        headers = self._authorization(pool, broker_id)
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.get(url, allow_redirects=False, headers=headers, **options) as answer,
            ):
                if answer.status != 200:
                    return None
                body = b""
                async for chunk in answer.content.iter_any():
                    body += chunk
                    if len(body) > most:
                        return None
                return body
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None


def partitions_of(groups: Sequence[Group], topic: str) -> list[tuple[str, int]]:
    """Return at most GROUP_PARTITIONS committed partitions, one of each group in turn."""
    committed = [[each for each in group.offsets if topic in ("", each.topic)] for group in groups]
    in_turn = (each for turn in zip_longest(*committed) for each in turn if each is not None)
    found = dict.fromkeys((each.topic, each.partition) for each in in_turn)
    return list(islice(found, GROUP_PARTITIONS))


def _group_document(group: Group, ends: Mapping[tuple[str, int], int], topic: str) -> Document:
    offsets = [
        (each.topic, each.partition, each.offset, ends.get((each.topic, each.partition)))
        for each in group.offsets
        if topic in ("", each.topic)
    ]
    return {
        "group": group.group,
        "state": group.state,
        "members": len(group.members),
        "offsets": offsets,
        "partitionsNotRead": sum(end is None for *_, end in offsets),  # not in the lag
    }


def _active(pool: str, brokers: Sequence[BrokerView]) -> dict[BrokerId, Target]:
    return {
        view.broker_id: Target(pool, view.broker_id, view.endpoints)
        for view in brokers
        if view.is_active
    }


def _decoded(body: bytes | None, kind: type[Read]) -> Read | None:
    if body is None:
        return None
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
