"""Report the controller's decisions as Kubernetes Events of Topics, Brokers and BrokerPools.

A broker that fails changes thousands of partitions, and a flapping one does it again and again. So
the events of one second about one object with one reason are one Kubernetes Event, the same reason
again within ten minutes raises the count of that Event, and each object has a budget, as in
client-go's correlator. What does not fit is left out: the event log (`tidemark events`) has it.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from tidemark_protocol.partition_state import TopicState

from tidemark_operator.api.kinds import BROKER, BROKER_POOL, EVENT, TOPIC, Object, ResourceKind
from tidemark_operator.api.partition_slice import labels_of, split_pool
from tidemark_operator.controller.core.event_texts import is_warning, kind_of, sentence_of
from tidemark_operator.controller.core.timeline import (
    ActionRequested,
    BrokerChanged,
    ControllerTookOver,
    Event,
    PartitionChanged,
    PartitionsCreated,
    RollStep,
    Timeline,
    TopicRetired,
)
from tidemark_operator.store.object_store import ObjectStore, StoreError

logger = logging.getLogger(__name__)

READ_SECONDS = 1.0
EVENTS_AT_A_TIME = 500
SAME_EVENT_MS = 600_000
BUDGET = 25  # of one object, of which one returns every five minutes
BUDGET_MS = 300_000
MAX_MESSAGE = 1000  # Kubernetes takes 1024
MAX_REMEMBERED = 4096  # objects and reasons
# What changes nothing for a user: epochs of entries that are renewed, a suspicion before its probe.
LEFT_OUT = frozenset({"PartitionChanged", "BrokerSuspected"})


@dataclass(frozen=True, slots=True)
class Subject:
    kind: ResourceKind
    namespace: str
    name: str


@dataclass(slots=True)
class Report:
    """The events of one object with one reason."""

    subject: Subject
    reason: str
    is_warning: bool
    first_ms: int
    last_ms: int
    message: str
    count: int = 1

    def merge(self, at_ms: int) -> None:
        self.last_ms, self.count = at_ms, self.count + 1

    @property
    def text(self) -> str:
        more = self.count - 1
        rest = f" (and {more} more, see `tidemark events`)" if more else ""
        return self.message[: MAX_MESSAGE - len(rest)] + rest


def reports_of(
    pool: str, events: Iterable[Event], object_of_topic: Callable[[str], str]
) -> list[Report]:
    """Group events by object and reason, in the order of their first ones."""
    found: dict[tuple[Subject, str], Report] = {}
    for event in events:
        reason = kind_of(event)
        if reason in LEFT_OUT:
            continue
        subject = _subject_of(pool, event, object_of_topic)
        known = found.get((subject, reason))
        if known is not None:
            known.merge(event.at_ms)
            continue
        found[subject, reason] = Report(
            subject, reason, is_warning(event), event.at_ms, event.at_ms, sentence_of(event)
        )
    return list(found.values())


def _subject_of(pool: str, event: Event, object_of_topic: Callable[[str], str]) -> Subject:
    namespace, name = split_pool(pool)
    match event.fact:
        case PartitionChanged() | PartitionsCreated() | TopicRetired():
            return Subject(TOPIC, namespace, object_of_topic(event.fact.topic.topic_id))
        case BrokerChanged():
            return Subject(BROKER, namespace, f"{name}-{event.fact.broker_id}")
        case ActionRequested(topic=TopicState(topic_id=topic_id)):
            return Subject(TOPIC, namespace, object_of_topic(topic_id))
        case ActionRequested():
            return Subject(BROKER, namespace, f"{name}-{event.fact.broker_id}")
        case ControllerTookOver() | RollStep():
            return Subject(BROKER_POOL, namespace, name)


@dataclass(slots=True)
class Budgets:
    """A token bucket for each object."""

    _left: dict[Subject, tuple[float, int]] = field(default_factory=dict)  # tokens, as of when

    def take(self, subject: Subject, now_ms: int) -> bool:
        """Take a token, if there is one."""
        tokens, since_ms = self._left.pop(subject, (float(BUDGET), now_ms))
        tokens = min(float(BUDGET), tokens + (now_ms - since_ms) / BUDGET_MS)
        may_report = tokens >= 1
        if len(self._left) >= MAX_REMEMBERED:
            del self._left[next(iter(self._left))]
        self._left[subject] = (tokens - may_report, now_ms)
        return may_report


class Pools(Protocol):
    """What the recorder sees of the controller."""

    @property
    def is_leading(self) -> bool: ...
    @property
    def controller_epoch(self) -> int: ...
    def pools(self) -> tuple[str, ...]: ...
    def timeline(self, pool: str) -> Timeline: ...
    def topic_object(self, pool: str, topic_id: str) -> str:
        """Return metadata.name of a topic's object, or ""."""
        ...


class EventRecorder:
    def __init__(self, store: ObjectStore, controller: Pools, *, now_ms: Callable[[], int]) -> None:
        """Create it; `now_ms` returns Unix milliseconds."""
        self._store = store
        self._controller = controller
        self._now_ms = now_ms
        self._read_to: dict[str, int] = {}
        self._term = -1
        self._budgets = Budgets()
        # The last Event of a subject and reason: its name, and when it was reported.
        self._reported: dict[tuple[Subject, str], tuple[str, int]] = {}

    async def run(self) -> None:
        """Report until cancelled; what cannot be stored is left out."""
        while True:
            await asyncio.sleep(READ_SECONDS)
            if self._controller.is_leading:
                await self.record()

    async def record(self) -> None:
        """Report what happened since the last time."""
        if self._controller.controller_epoch != self._term:
            self._term, self._read_to = self._controller.controller_epoch, {}
        for pool in self._controller.pools():
            timeline = self._controller.timeline(pool)
            while events := timeline.after(self._read_to.get(pool, 0), EVENTS_AT_A_TIME):
                self._read_to[pool] = events[-1].number

                def object_of(topic_id: str, pool: str = pool) -> str:
                    return self._controller.topic_object(pool, topic_id)

                for report in reports_of(pool, events, object_of):
                    await self._report(pool, report)

    async def _report(self, pool: str, report: Report) -> None:
        subject = report.subject
        if not subject.name or not self._budgets.take(subject, self._now_ms()):
            return
        try:
            if not await self._raise_count(report):
                await self._create(pool, report)
        except StoreError as error:
            logger.warning(
                "Kubernetes Event not stored",
                extra={"object": subject.name, "reason": report.reason, "error": str(error)},
            )

    async def _raise_count(self, report: Report) -> bool:
        """Add to the Event of the same reason, if there was one lately."""
        subject = report.subject
        name, at_ms = self._reported.get((subject, report.reason), ("", 0))
        if not name or self._now_ms() - at_ms > SAME_EVENT_MS:
            return False
        stored = await self._store.get(EVENT, subject.namespace, name)
        if stored is None:
            return False
        count = int(stored.get("count") or 1) + report.count
        changed = stored | {
            "count": count,
            "lastTimestamp": _time(report.last_ms),
            "message": report.text,
        }
        await self._store.replace(EVENT, changed)
        self._remember(subject, report.reason, name)
        return True

    async def _create(self, pool: str, report: Report) -> None:
        subject = report.subject
        item = await self._store.get(subject.kind, subject.namespace, subject.name)
        if item is None:
            return  # deleted since
        event = event_object(pool, report, item["metadata"], self._term)
        await self._store.create(EVENT, event)
        self._remember(subject, report.reason, str(event["metadata"]["name"]))

    def _remember(self, subject: Subject, reason: str, name: str) -> None:
        self._reported.pop((subject, reason), None)
        if len(self._reported) >= MAX_REMEMBERED:
            del self._reported[next(iter(self._reported))]
        self._reported[subject, reason] = (name, self._now_ms())


def event_object(pool: str, report: Report, of: Mapping[str, object], term: int) -> Object:
    subject = report.subject
    identity = f"{term} {report.first_ms} {report.reason} {report.message}"
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {
            "name": f"{subject.name}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}",
            "namespace": subject.namespace,
            "labels": labels_of(pool),
        },
        "involvedObject": {
            "apiVersion": subject.kind.api_version,
            "kind": subject.kind.kind,
            "name": subject.name,
            "namespace": subject.namespace,
            "uid": of.get("uid", ""),
        },
        "type": "Warning" if report.is_warning else "Normal",
        "reason": report.reason,
        "message": report.text,
        "source": {"component": "tidemark-operator"},
        "firstTimestamp": _time(report.first_ms),
        "lastTimestamp": _time(report.last_ms),
        "count": report.count,
    }


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
