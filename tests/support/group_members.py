"""Members of a consumer group, each a librdkafka consumer in a thread of its own."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.support.kafka_cluster import LIMIT_SECONDS, librdkafka_settings
from tests.support.local_cluster import LocalCluster
from tests.support.waiting import wait_for

POLL_SECONDS = 0.05
SESSION_MS = 6_000
COORDINATOR_MOVES = {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}


@dataclass
class Rebalance:
    """What a member was told; lost: its session is over, others may read already."""

    kind: str  # assigned, revoked, lost
    partitions: list[int]


@dataclass
class Member:
    """Polls until it is stopped, and commits what it has read as it goes."""

    cluster: LocalCluster
    group: str
    topic: str = "orders"
    settings: dict[str, Any] = field(default_factory=dict)
    commits: bool = True

    def __post_init__(self) -> None:
        self.values: list[bytes] = []
        self.rebalances: list[Rebalance] = []
        self.errors: list[KafkaError] = []
        self.fatal: KafkaError | None = None
        self.committed: dict[int, int] = {}  # acknowledged, by partition
        self.commit_times: list[float] = []
        self._stop = threading.Event()
        self._consumer = Consumer(
            librdkafka_settings(
                self.cluster,
                **{
                    "group.id": self.group,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "session.timeout.ms": SESSION_MS,
                    "heartbeat.interval.ms": 500,
                    **self.settings,
                },
            )
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set()

    @property
    def partitions(self) -> list[int]:
        """As it was told last: eager members are assigned all, cooperative ones what is added."""
        held: set[int] = set()
        for rebalance in tuple(self.rebalances):
            if rebalance.kind == "assigned":
                held |= set(rebalance.partitions)
            else:
                held -= set(rebalance.partitions)
        return sorted(held)

    def kinds(self) -> list[str]:
        return [rebalance.kind for rebalance in self.rebalances]

    def stop(self, *, closes: bool = True) -> float:
        """Seconds that closing took. Without `closes` only its polling ends."""
        self._stop.set()
        self._thread.join(LIMIT_SECONDS)
        assert not self._thread.is_alive(), "the member does not come back from a poll"
        begin = time.monotonic()
        if closes:
            self._consumer.close()
        return time.monotonic() - begin

    # ---- in its thread

    def _run(self) -> None:
        self._consumer.subscribe(
            [self.topic],
            on_assign=self._recorded("assigned"),
            on_revoke=self._recorded("revoked"),
            on_lost=self._recorded("lost"),
        )
        while not self._stop.is_set():
            try:
                message = self._consumer.poll(POLL_SECONDS)
            except KafkaException as error:
                self._fail(error.args[0])
                continue
            if message is not None:
                self._take(message)

    def _recorded(self, kind: str) -> Any:
        def note(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self.rebalances.append(Rebalance(kind, sorted(place.partition for place in partitions)))

        return note

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self._fail(error)
            return
        self.values.append(message.value())
        if self.commits:
            self._commit(message)

    def _fail(self, error: KafkaError) -> None:
        self.errors.append(error)
        if error.code() == KafkaError._FATAL:
            self.fatal = error

    def _commit(self, message: Message) -> None:
        try:
            self._consumer.commit(message=message, asynchronous=False)
        except KafkaException as error:
            self.errors.append(error.args[0])
            return
        self.committed[message.partition()] = message.offset() + 1
        self.commit_times.append(time.monotonic())


@contextlib.contextmanager
def members_of(
    cluster: LocalCluster, group: str, count: int, **settings: Any
) -> Iterator[list[Member]]:
    """`count` members that have all partitions between them."""
    found: list[Member] = []
    try:
        for _ in range(count):
            found.append(Member(cluster, group, settings=dict(settings)))
        wait_until_shared(found)
        yield found
    finally:
        for member in found:
            if not member.is_stopped:
                member.stop()


def wait_until_shared(members: list[Member], partitions: int = 3) -> None:
    """Everybody has something as far as it goes, and each partition has one owner."""

    def is_shared() -> bool:
        held = [partition for member in members for partition in member.partitions]
        have_some = sum(bool(member.partitions) for member in members)
        is_spread = have_some == min(len(members), partitions)
        return is_spread and sorted(held) == list(range(partitions))

    wait_for("the partitions to be shared", is_shared, seconds=LIMIT_SECONDS)


def tell(figure: str) -> None:
    """For who runs the test with -s; nothing is asserted of it."""
    sys.stdout.write(figure + "\n")


def committed_offsets(cluster: LocalCluster, group: str, topic: str = "orders") -> dict[int, int]:
    """By partition, of those that have one. librdkafka looks for a coordinator that has just moved
    again, but leaves it to its caller to ask that one."""
    consumer = Consumer(librdkafka_settings(cluster, **{"group.id": group}))
    places = [TopicPartition(topic, number) for number in range(3)]

    def ask() -> list[TopicPartition] | None:
        try:
            found: list[TopicPartition] = consumer.committed(places, timeout=LIMIT_SECONDS)
        except KafkaException as error:
            assert error.args[0].code() in COORDINATOR_MOVES, error
            return None
        return found

    try:
        found = wait_for("the coordinator's answer", ask, seconds=LIMIT_SECONDS)
    finally:
        consumer.close()
    return {place.partition: place.offset for place in found if place.offset >= 0}
