"""The broker that coordinates a group is killed while its members read and commit."""

import itertools
import signal
import threading
import time
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.group_members import Member, committed_offsets, members_of, tell
from tests.support.kafka_cluster import LIMIT_SECONDS, Sending, librdkafka_settings
from tests.support.local_cluster import LocalCluster, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster

GROUP = "survivors"


class Load:
    """Records for every partition, until it is stopped: by leaving it at the latest, as the next
    test's brokers may listen on the same ports."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.sent: list[bytes] = []
        self._sending = Sending(cluster, **{"enable.idempotence": True, "linger.ms": 5})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.01):
            value = b"%06d" % number
            self._sending.send([value], partition=number % 3)
            self.sent.append(value)
            number += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._end()
        finally:
            self._sending.abandon()

    @property
    def waiting(self) -> int:
        return len(self._sending)

    def _end(self) -> None:
        self._stop.set()
        self._thread.join(LIMIT_SECONDS)
        assert not self._thread.is_alive(), "the load goes on"

    def stop(self) -> list[bytes]:
        self._end()
        self._sending.flush()
        assert self._sending.failed == []
        return self.sent


def test_a_load_that_is_left_early_leaves_nothing_for_the_next_brokers(tmp_path: Path) -> None:
    with Load(LocalCluster(tmp_path)) as load:  # of brokers that never come
        wait_for("records", lambda: load.waiting >= 3, seconds=LIMIT_SECONDS)
    assert load.waiting == 0


def coordinator_of(cluster: LocalCluster) -> int:
    admin = AdminClient(librdkafka_settings(cluster))
    return int(admin.describe_consumer_groups([GROUP])[GROUP].result().coordinator.id)


def go_on_after(members: list[Member], killed_at: float) -> list[float]:
    """When each one had a commit acknowledged again, in seconds after the kill. A commit that was
    under way in that moment may still be acknowledged, so the second one counts."""

    def have_committed() -> bool:
        return all(sum(t > killed_at for t in tuple(m.commit_times)) >= 2 for m in members)

    wait_for("commits after the kill", have_committed, seconds=LIMIT_SECONDS)
    return [[t for t in m.commit_times if t > killed_at][1] - killed_at for m in members]


def last_committed(members: list[Member]) -> dict[int, int]:
    """The highest by partition: the member that joined first committed for all of them once."""
    found: dict[int, int] = {}
    for member in members:
        for partition, offset in member.committed.items():
            found[partition] = max(offset, found.get(partition, 0))
    return found


def longest_gap(member: Member) -> float:
    times = member.commit_times
    return max(later - earlier for earlier, later in itertools.pairwise(times))


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_no_committed_offset_is_lost_and_members_go_on_when_their_coordinator_ends(
    tmp_path: Path, signal_number: int
) -> None:
    with running(tmp_path) as cluster:
        cluster.wait_until_in_sync()
        with Load(cluster) as load, members_of(cluster, GROUP, 3) as members:
            for member in members:
                wait_for("commits", lambda m=member: len(m.commit_times) >= 20, seconds=60)
            cluster.wait_until_in_sync("__consumer_offsets")
            coordinator = coordinator_of(cluster)
            rebalances = [len(member.rebalances) for member in members]
            acknowledged = last_committed(members)
            killed_at = time.monotonic()
            cluster.kill(coordinator, signal_number)
            went_on = go_on_after(members, killed_at)
            for partition, offset in committed_offsets(cluster, GROUP).items():
                assert offset >= acknowledged[partition]
            tell(f"members went on {', '.join(f'{s:.2f}' for s in went_on)} s after the kill")
            assert [len(member.rebalances) for member in members] == rebalances
            sent = load.stop()
            wait_for(
                "all records",
                lambda: {v for m in members for v in m.values} >= set(sent),
                seconds=60,
            )
            tell(f"longest gaps {', '.join(f'{longest_gap(m):.2f}' for m in members)} s")
        assert committed_offsets(cluster, GROUP) == last_committed(members)
        found = [value for member in members for value in member.values]
        assert len(found) == len(set(found)), "a record was read twice without a rebalance"
