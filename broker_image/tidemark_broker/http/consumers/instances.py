"""Keep the consumers of this broker's HTTP clients: create, find, end, also when forgotten.

A consumer belongs to the broker that created it and ends with it; its client creates another one
then. One without a request for `IDLE_SECONDS` leaves its group; what its client received and did
not commit is read again by others.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from tidemark_protocol.access_messages import ANONYMOUS
from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.http.consumers.group_consumer import ConsumerSettings, GroupConsumer
from tidemark_broker.http.media_types import EmbeddedFormat
from tidemark_broker.http.problems import HttpProblem

MAX_INSTANCES = 1_000
IDLE_SECONDS = 300.0  # consumer.instance.timeout.ms of the REST Proxy
SWEEP_SECONDS = 5.0
END_SECONDS = 2.0  # all of them, when the broker ends

NewConsumer = Callable[[ConsumerSettings], GroupConsumer]

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Instance:
    consumer: GroupConsumer
    embedded_format: EmbeddedFormat
    request_timeout_ms: int
    membership: asyncio.Task[None]
    used_s: float
    user: str  # who created it: to others it does not exist
    polls: int = 0  # under way
    deferred: tuple[str, int, int] | None = None  # topic, partition, offset of an untold problem

    @property
    def key(self) -> tuple[str, str]:
        return self.consumer.settings.group_id, self.consumer.settings.name


class Instances:
    def __init__(self, new_consumer: NewConsumer) -> None:
        self._new_consumer = new_consumer
        self._known: dict[tuple[str, str], Instance] = {}
        self._ending: dict[asyncio.Task[None], None] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._known)

    def create(
        self,
        settings: ConsumerSettings,
        embedded_format: EmbeddedFormat,
        request_timeout_ms: int,
        *,
        user: str = ANONYMOUS.name,
    ) -> Instance:
        """Create a consumer.

        Raises HttpProblem: the name is taken (409), or this broker is at its limit.
        """
        key = (settings.group_id, settings.name)
        if key in self._known:
            raise HttpProblem(
                ErrorCode.INVALID_REQUEST,
                f"group {settings.group_id!r}: consumer {settings.name!r} exists on this broker:"
                " choose another name, or delete it",
                status=409,
            )
        if len(self._known) >= MAX_INSTANCES:
            raise HttpProblem(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"consumers: this broker is at its limit of {MAX_INSTANCES}: use another broker",
            )
        loop = asyncio.get_running_loop()
        consumer = self._new_consumer(settings)
        task = loop.create_task(consumer.membership.run(), name=f"membership {settings.name}")
        task.add_done_callback(lambda ended: _notify_failure(consumer, ended))
        instance = Instance(consumer, embedded_format, request_timeout_ms, task, loop.time(), user)
        self._known[key] = instance
        if self._sweep_timer is None:
            self._sweep_timer = loop.call_later(SWEEP_SECONDS, self._sweep)
        return instance

    def find(self, group_id: str, name: str, *, user: str = ANONYMOUS.name) -> Instance:
        """Return a consumer.

        Raises HttpProblem (404).
        """
        instance = self._known.get((group_id, name))
        if instance is None or instance.user != user:
            raise HttpProblem(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {group_id[:80]!r}: consumer {name[:80]!r} is not on this broker: it was"
                f" created elsewhere, deleted, or unused for {IDLE_SECONDS:g} s: create another",
                status=404,
            )
        instance.used_s = asyncio.get_running_loop().time()
        return instance

    async def delete(self, instance: Instance) -> None:
        """End a consumer; it leaves its group, after a commit if it commits automatically."""
        self._known.pop(instance.key, None)
        await _end(instance, is_requested=True)

    async def close(self) -> None:
        """End all consumers, so that their groups need not wait for session timeouts."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        instances = tuple(self._known.values())
        self._known.clear()
        ends = [
            asyncio.create_task(_end(instance), name="end of a consumer") for instance in instances
        ]
        ends += self._ending
        if ends:
            _, late = await asyncio.wait(ends, timeout=END_SECONDS)
            for end in late:
                end.cancel()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        for instance in tuple(self._known.values()):
            if not instance.polls and loop.time() - instance.used_s > IDLE_SECONDS:
                del self._known[instance.key]
                _log.info("a consumer was forgotten by its client", extra={"name_": instance.key})
                end = loop.create_task(_end(instance, commits=False), name="end of a consumer")
                self._ending[end] = None
                end.add_done_callback(lambda done: self._ending.pop(done, None))
        self._sweep_timer = None
        if self._known:
            self._sweep_timer = loop.call_later(SWEEP_SECONDS, self._sweep)


async def _end(instance: Instance, *, is_requested: bool = False, commits: bool = True) -> None:
    instance.membership.cancel()
    await asyncio.wait([instance.membership])
    await instance.consumer.close(is_requested=is_requested, commits=commits)


def _notify_failure(consumer: GroupConsumer, task: asyncio.Task[None]) -> None:
    """Record the failure for the client, which would poll without records else."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a consumer's membership ended", exc_info=error)
        consumer.membership.fail(f"its part in the group has failed ({type(error).__name__})")
