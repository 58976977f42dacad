"""Events reach the observers that override them, in order, and no others."""

from pathlib import Path

from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.partition_observer import (
    PartitionObserver,
    manager_events,
    nothing,
    partition_events,
)

from tests.support.in_process_pool import InProcessPool


class Recorder(PartitionObserver):
    def __init__(self, name: str, seen: list[str]) -> None:
        self._name = name
        self._seen = seen

    def on_append(self, replica: Partition) -> None:
        self._seen.append(f"{self._name} append {replica.log.log_end_offset}")


class Both(Recorder):
    def on_topics_deleted(self, topics: tuple[str, ...]) -> None:
        self._seen.append(f"{self._name} deleted {' '.join(topics)}")


def test_observers_handle_an_event_in_their_order(tmp_path: Path) -> None:
    pool = InProcessPool(tmp_path, brokers=(1,), min_insync=1)
    pool.lead(1)
    pool.brokers[1].produce("a")
    seen: list[str] = []
    observers = (Recorder("first", seen), PartitionObserver(), Both("second", seen))
    partition_events(observers, nothing).append(pool.brokers[1].replica())
    manager_events(observers).topics_deleted(("orders", "payments"))
    assert seen == ["first append 1", "second append 1", "second deleted orders payments"]
    pool.kill(1)


def test_an_event_that_no_observer_overrides_calls_nothing() -> None:
    observers = (Recorder("only", []), PartitionObserver())
    events = partition_events(observers, nothing)
    assert {events.truncate, events.role_change, events.log_start} == {nothing}
    assert events.append == observers[0].on_append, "a single handler is called directly"


def test_the_local_state_is_current_when_observers_are_called(tmp_path: Path) -> None:
    pool = InProcessPool(tmp_path, brokers=(1,), min_insync=1)
    broker = pool.brokers[1]
    touched: list[bool] = []

    class RoleObserver(PartitionObserver):
        def on_role_change(self, replica: Partition) -> None:
            key = (replica.topic_id, replica.partition)
            touched.append(key in broker.partitions.roles.touched)

    broker.observers.add(RoleObserver())
    pool.lead(1)
    assert touched == [True]
    pool.kill(1)
