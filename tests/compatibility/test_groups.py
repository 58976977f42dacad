"""A group of every client: members come and go, others take over, nobody begins anew.

Told by records alone, as kafka-go says nothing of assignments. The stories of all clients run at
the same time: most of each is waiting.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from tests.compatibility.client_programs import CLIENTS, ClientProgram, ClientPrograms
from tests.support.kafka_cluster import Sending, kafka_cluster
from tests.support.local_cluster import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
PAUSE_SECONDS = 0.1
# At SIGTERM kcat commits the record that it has just got, and does not print it.
DROPPED_AT_THE_END = {"kcat": 1}
ENDED = {0, 143, -15}  # as told: by itself, or by SIGTERM as Java says it and as others do


def topic_of(client: str) -> str:
    return f"group-{client}"


@dataclass
class SteadyWorkload:
    """A record for each partition of the topics, again and again, until the end."""

    cluster: LocalCluster
    topics: list[str]
    sent: int = 0  # to each partition of each topic
    _ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        sending = Sending(self.cluster, **{"linger.ms": 1, "enable.idempotence": True})
        while not self._ended.wait(PAUSE_SECONDS):
            for topic in self.topics:
                for partition in range(3):
                    value = b"%d.%d" % (partition, self.sent)
                    sending.send([value], topic=topic, partition=partition)
            self.sent += 1
        sending.flush()
        assert sending.failed == []

    def end(self) -> None:
        self._ended.set()


def numbers(member: ClientProgram) -> dict[int, list[int]]:
    """What it read of each partition, by the numbers in the values."""
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for value in member.values("record_data"):
        partition, number = value.split(".")
        found[int(partition)].append(int(number))
    return found


def reads_beyond(member: ClientProgram, number: int) -> set[int]:
    return {p for p, found in numbers(member).items() if found and found[-1] > number}


def story(
    client: str, cluster: LocalCluster, programs: ClientPrograms, steady: SteadyWorkload
) -> None:
    def member() -> ClientProgram:
        how = {"group": f"members-{client}"}
        return programs.start(client, "group", cluster, topic_of(client), **how)

    with member() as first, member() as second:
        for one in (first, second):
            one.wait_for("its part of three partitions", lambda one=one: reads_beyond(one, 0))
        now = steady.sent + 1
        first.wait_for("records that come now", lambda: reads_beyond(first, now))
        second.wait_for("records that come now", lambda: reads_beyond(second, now))
        assert not reads_beyond(first, now) & reads_beyond(second, now), "one partition, two owners"
        second.end()
        assert second.wait() in ENDED, second.errors_text()
        now = steady.sent + 1
        first.wait_for("the other's partitions", lambda: reads_beyond(first, now) == {0, 1, 2})
        first.end()
        assert first.wait() in ENDED, first.errors_text()
    read = [numbers(first), numbers(second)]
    for partition in range(3):
        found = {number for one in read for number in one[partition]}
        unread = set(range(max(found) + 1)) - found
        assert len(unread) <= DROPPED_AT_THE_END.get(client, 0), f"nobody read {unread}"
    with member() as third:
        now = steady.sent
        third.wait_for("its turn", lambda: reads_beyond(third, now) == {0, 1, 2})
        for partition in range(3):
            reached = max(number for one in read for number in one[partition])
            began = numbers(third)[partition][0]
            latest = reached + 1 + DROPPED_AT_THE_END.get(client, 0)
            assert reached - 20 <= began <= latest, "not where the group had been"


@pytest.fixture(scope="module")
def stories(
    programs: ClientPrograms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[None]]]:
    topics = {topic_of(client): 3 for client in CLIENTS}
    with kafka_cluster(tmp_path_factory.mktemp("groups"), **topics) as cluster:
        steady = SteadyWorkload(cluster, list(topics))
        with ThreadPoolExecutor(len(CLIENTS) + 1) as pool:
            writing = pool.submit(steady.run)
            reported = {c: pool.submit(story, c, cluster, programs, steady) for c in CLIENTS}
            try:
                yield reported
            finally:
                steady.end()
        writing.result()


@pytest.mark.parametrize("client", CLIENTS)
def test_group_members_share_take_over_and_go_on(
    stories: dict[str, Future[None]], client: str
) -> None:
    stories[client].result(200)
