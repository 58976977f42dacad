"""Consumer groups of librdkafka by confluent-kafka, unmodified, against real broker processes."""

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.group_members import (
    SESSION_MS,
    Member,
    committed_offsets,
    members_of,
    tell,
    wait_until_shared,
)
from tests.support.kafka_cluster import (
    LIMIT_SECONDS,
    Sending,
    librdkafka_settings,
)
from tests.support.local_cluster import LocalCluster, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster

SHORT_OFFSETS = {
    "TIDEMARK_OFFSETS_RETENTION_MINUTES": "1",
    "TIDEMARK_OFFSETS_RETENTION_CHECK_SECONDS": "1",
    "TIDEMARK_GROUP_INITIAL_REBALANCE_DELAY_MS": "300",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    data_dir = tmp_path_factory.mktemp("groups")
    with running(data_dir, environment=SHORT_OFFSETS) as found:
        found.wait_until_in_sync()
        send(found, 30, "first")
        yield found


def send(cluster: LocalCluster, count: int, name: str) -> list[bytes]:
    """Spread evenly over the three partitions."""
    sending = Sending(cluster)
    values = [f"{name}-{number}".encode() for number in range(count)]
    for number, value in enumerate(values):
        sending.send([value], partition=number % 3)
    sending.flush()
    assert sending.failed == []
    return values


def wait_for_values(members: list[Member], expected: list[bytes]) -> None:
    def has_all() -> bool:
        found = {value for member in members for value in member.values}
        return found >= set(expected)

    wait_for(f"{len(expected)} records", has_all, seconds=LIMIT_SECONDS)


def test_a_member_reads_commits_leaves_and_the_next_goes_on_where_it_was(
    cluster: LocalCluster,
) -> None:
    with members_of(cluster, "first-group", 1) as [member]:
        wait_for("30 records", lambda: len(member.values) >= 30, seconds=LIMIT_SECONDS)
        wait_for("30 commits", lambda: len(member.commit_times) >= 30, seconds=LIMIT_SECONDS)
        tell(f"closing took {member.stop():.3f} s")
        assert member.errors == []
    assert committed_offsets(cluster, "first-group") == member.committed
    later = send(cluster, 3, "later")
    with members_of(cluster, "first-group", 1) as [member]:
        wait_for_values([member], later)
        assert sorted(member.values) == sorted(later)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_the_partitions_as_they_come_and_go(
    cluster: LocalCluster, strategy: str
) -> None:
    settings = {"partition.assignment.strategy": strategy}
    group = f"sharing-{strategy}"
    with members_of(cluster, group, 3, **settings) as members:
        sent = send(cluster, 30, f"shared-{strategy}")
        wait_for_values(members, sent)
        for member in members:
            ours = [value for value in member.values if value in set(sent)]
            assert len(ours) == len(set(ours)) == 10
        members[0].stop()
        wait_until_shared(members[1:])
        sent = send(cluster, 30, f"left-{strategy}")
        wait_for_values(members[1:], sent)
        assert [member.fatal for member in members] == [None] * 3


def test_a_cooperative_member_keeps_what_it_has_while_another_one_joins(
    cluster: LocalCluster,
) -> None:
    settings = {"partition.assignment.strategy": "cooperative-sticky"}
    with members_of(cluster, "cooperative", 1, **settings) as [first]:
        second = Member(cluster, "cooperative", settings=settings)
        wait_until_shared([first, second])
        second.stop()
        revoked = [entry.partitions for entry in first.rebalances if entry.kind == "revoked"]
        assert [len(partitions) for partitions in revoked] == [1]


def test_an_eager_member_gives_all_away_before_it_gets_its_share(cluster: LocalCluster) -> None:
    with members_of(cluster, "eager", 1) as [first]:
        second = Member(cluster, "eager")
        wait_until_shared([first, second])
        second.stop()
        assert first.rebalances[1].kind == "revoked"
        assert first.rebalances[1].partitions == [0, 1, 2]


def test_a_static_member_that_restarts_changes_nothing_for_the_others(
    cluster: LocalCluster,
) -> None:
    stays = Member(cluster, "static", settings={"group.instance.id": "stays"})
    restarts = Member(cluster, "static", settings={"group.instance.id": "restarts"})
    wait_until_shared([stays, restarts])
    wait_for("a quiet group", lambda: described(cluster, "static") == ("STABLE", 2))
    before, held = len(stays.rebalances), restarts.partitions
    restarts.stop()  # librdkafka's static members leave without a word
    again = Member(cluster, "static", settings={"group.instance.id": "restarts"})
    wait_for("its partitions", lambda: again.partitions == held, seconds=LIMIT_SECONDS)
    assert len(stays.rebalances) == before
    stays.stop()
    again.stop()


def test_of_two_static_members_of_one_name_the_older_one_is_fenced(cluster: LocalCluster) -> None:
    older = Member(cluster, "fenced", settings={"group.instance.id": "one"})
    wait_until_shared([older])
    newer = Member(cluster, "fenced", settings={"group.instance.id": "one"})
    wait_for("its partitions", lambda: newer.partitions == [0, 1, 2], seconds=LIMIT_SECONDS)
    wait_for("the older one's end", lambda: older.fatal is not None, seconds=LIMIT_SECONDS)
    assert older.fatal is not None and "Static consumer fenced" in older.fatal.str()
    newer.stop()
    older.stop()


DYING_MEMBER = """
import sys, time
from confluent_kafka import Consumer
consumer = Consumer({
    "bootstrap.servers": sys.argv[1], "group.id": sys.argv[2],
    "session.timeout.ms": 6000, "heartbeat.interval.ms": 500,
})
consumer.subscribe(["orders"], on_assign=lambda *_: print("assigned", flush=True))
while True:
    consumer.poll(0.1)
"""


def test_a_dead_member_loses_its_partitions_when_its_session_ends(cluster: LocalCluster) -> None:
    servers = librdkafka_settings(cluster)["bootstrap.servers"]
    dying = subprocess.Popen(
        [sys.executable, "-c", DYING_MEMBER, servers, "dying"], stdout=subprocess.PIPE
    )
    assert dying.stdout is not None and dying.stdout.readline() == b"assigned\n"
    other = Member(cluster, "dying")
    wait_for("a share", lambda: bool(other.partitions), seconds=LIMIT_SECONDS)
    assert len(other.partitions) < 3
    dying.kill()
    dying.wait()
    begin = time.monotonic()
    wait_for("all of it", lambda: len(other.partitions) == 3, seconds=LIMIT_SECONDS)
    taken_s = time.monotonic() - begin
    tell(f"taken over {taken_s:.1f} s after the kill, session {SESSION_MS / 1000:.0f} s")
    other.stop()


def test_a_member_that_does_not_come_back_is_left_behind_by_a_rebalance(
    cluster: LocalCluster,
) -> None:
    """It sends heartbeats and never asks for more: max.poll.interval.ms, the rebalance timeout."""
    settings = {"max.poll.interval.ms": 7_000}
    stuck = Member(cluster, "stuck", settings=settings)
    wait_until_shared([stuck])
    stuck.stop(closes=False)
    other = Member(cluster, "stuck", settings=settings)
    wait_for("all of it", lambda: len(other.partitions) == 3, seconds=LIMIT_SECONDS)
    assert described(cluster, "stuck") == ("STABLE", 1)
    other.stop()
    stuck.stop()


def described(cluster: LocalCluster, group: str) -> tuple[str, int]:
    """(state, number of members)"""
    admin = AdminClient(librdkafka_settings(cluster))
    found = admin.describe_consumer_groups([group], request_timeout=LIMIT_SECONDS)[group].result()
    return found.state.name, len(found.members)


def test_administrators_see_change_and_delete_groups(cluster: LocalCluster) -> None:
    admin = AdminClient(librdkafka_settings(cluster))
    with members_of(cluster, "administered", 2) as members:
        wait_for("commits", lambda: all(member.committed for member in members))
        found = admin.describe_consumer_groups(["administered"])["administered"].result()
        assert (found.state, found.partition_assignor) == (ConsumerGroupState.STABLE, "range")
        held = [
            place.partition for member in found.members
            for place in member.assignment.topic_partitions
        ]  # fmt: skip
        assert sorted(held) == [0, 1, 2]
        listed = admin.list_consumer_groups().result().valid
        assert "administered" in {group.group_id for group in listed}
        with pytest.raises(KafkaException) as refused:
            admin.delete_consumer_groups(["administered"])["administered"].result()
        assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    moved = ConsumerGroupTopicPartitions("administered", [TopicPartition("orders", 1, 4)])
    admin.alter_consumer_group_offsets([moved])["administered"].result()
    requested = ConsumerGroupTopicPartitions("administered", [TopicPartition("orders", 1)])
    [reported] = (
        admin.list_consumer_group_offsets([requested])["administered"].result().topic_partitions
    )
    assert reported.offset == 4
    states = {ConsumerGroupState.EMPTY}
    listed = admin.list_consumer_groups(states=states).result().valid
    assert "administered" in {group.group_id for group in listed}
    admin.delete_consumer_groups(["administered"])["administered"].result()
    assert committed_offsets(cluster, "administered") == {}


def test_offsets_go_with_their_topic(cluster: LocalCluster) -> None:
    """Else a consumer of a later topic of that name would begin in its middle."""
    admin = AdminClient(librdkafka_settings(cluster))
    admin.create_topics([NewTopic("passing", 3, 3)])["passing"].result(LIMIT_SECONDS)
    sending = Sending(cluster)
    sending.send([b"a", b"b", b"c"], topic="passing", partition=0)
    sending.flush()
    member = Member(cluster, "passing-readers", topic="passing")
    wait_for("commits", lambda: member.committed.get(0) == 3, seconds=LIMIT_SECONDS)
    member.stop()
    assert committed_offsets(cluster, "passing-readers", "passing") == {0: 3}
    admin.delete_topics(["passing"])["passing"].result(LIMIT_SECONDS)
    wait_for(
        "the end of its offsets",
        lambda: committed_offsets(cluster, "passing-readers", "passing") == {},
        seconds=LIMIT_SECONDS,
    )


def test_the_offsets_topic_is_internal_and_closed_to_writers(cluster: LocalCluster) -> None:
    failed: list[KafkaError] = []
    producer = Producer(librdkafka_settings(cluster))
    producer.produce(
        "__consumer_offsets",
        key=b"k",
        value=b"v",
        on_delivery=lambda error, _: failed.append(error),
    )
    assert producer.flush(LIMIT_SECONDS) == 0
    assert [error.code() for error in failed] == [KafkaError.TOPIC_EXCEPTION]
    topic = next(t for t in cluster.pool()["topics"] if t["topic"] == "__consumer_offsets")
    assert len(topic["partitions"]) == 50


@pytest.mark.long  # a minute is the shortest retention; the core's test has a clock of its own
def test_offsets_expire_when_nobody_uses_the_group_any_more(cluster: LocalCluster) -> None:
    with members_of(cluster, "forgotten", 1) as [member]:
        wait_for("commits", lambda: len(member.committed) == 3, seconds=LIMIT_SECONDS)
    assert len(committed_offsets(cluster, "forgotten")) == 3
    begin = time.monotonic()
    wait_for(
        "the end of its offsets",
        lambda: committed_offsets(cluster, "forgotten") == {},
        seconds=90,
    )
    tell(f"offsets expired {time.monotonic() - begin:.0f} s after the last member left")
    assert described(cluster, "forgotten") == ("DEAD", 0)
