"""The queue of producer checks: one entry for a replica, none for long for removed ones."""

from types import SimpleNamespace
from typing import Any, cast

from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.replica_ticks import EXPIRIES_AT_A_TIME, Key, ReplicaTicks
from tidemark_protocol.ids import TopicId

PAUSE_MS = 600_000
TOPIC = TopicId("00000000-0000-0000-0000-00000000000a")


class IdleReplica:
    """A replica to which nothing happens."""

    def __init__(self, partition: int) -> None:
        self.topic_id, self.partition = TOPIC, partition
        self.corruption = self.leader = None
        self.log: Any = SimpleNamespace(corruption_marker=SimpleNamespace(corruption=None))
        self.checks = 0

    def on_tick(self, now_ms: int) -> None:
        pass

    def expire_producers(self, now_ms: int) -> int:
        self.checks += 1
        return now_ms + PAUSE_MS


class Ticking:
    def __init__(self) -> None:
        self.now_ms = 0
        self.replicas: dict[Key, IdleReplica] = {}
        hosted = cast(dict[Key, Partition], self.replicas)
        self.ticks = ReplicaTicks(hosted, lambda replica: None, lambda: self.now_ms)

    def host(self, partition: int) -> IdleReplica:
        replica = self.replicas[TOPIC, partition] = IdleReplica(partition)
        self.ticks.add(cast(Partition, replica))
        return replica

    def tick(self, after_ms: int = 0) -> None:
        self.now_ms += after_ms
        for _ in self.ticks.steps():
            pass


def test_a_replica_is_checked_at_once_and_then_after_each_pause() -> None:
    ticking = Ticking()
    replica = ticking.host(0)
    ticking.tick()
    ticking.tick(PAUSE_MS - 1)
    assert replica.checks == 1
    ticking.tick(1)
    assert replica.checks == 2


def test_replicas_that_come_and_go_leave_no_queue_behind() -> None:
    ticking = Ticking()
    stays = ticking.host(0)
    for number in range(1, 5 * EXPIRIES_AT_A_TIME):
        ticking.host(number)
        ticking.tick()
        del ticking.replicas[TOPIC, number]
        assert len(ticking.ticks._expiries) <= EXPIRIES_AT_A_TIME + 4
    ticking.tick(PAUSE_MS)
    assert stays.checks == 2
