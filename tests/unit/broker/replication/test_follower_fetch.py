"""Sessions of followers: what is not named again is asked all the same."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionResponse,
)
from tidemark_broker.replication import follower_fetch
from tidemark_broker.replication.follower_session import REPLICA_SESSION_ID, FollowerSession
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch

from tests.support.in_process_pool import KEY, TOPIC_ID, InProcessPool

WAIT_MS = 500


class Session:
    """Broker 2 asks broker 1, by hand."""

    def __init__(self, pool: InProcessPool) -> None:
        self.pool = pool
        self.link = FollowerSession()
        self.epoch = 0

    def request(self, *, offset: int | None = None, forget: bool = False) -> FetchRequest:
        """Names the partition if there is an offset."""
        epoch = self.pool.state.leader_epoch
        requested = () if offset is None else (FetchPartition(0, epoch, offset, -1, 0, 1_000_000),)
        request = FetchRequest(
            WAIT_MS,
            1,
            10_000_000,
            tuple(FetchTopic(TOPIC_ID, (entry,)) for entry in requested),
            replica_id=2,
            replica_epoch=self.pool.brokers[2].broker_epoch,
            session_id=REPLICA_SESSION_ID if self.epoch else 0,
            session_epoch=self.epoch,
            forgotten=(("", TOPIC_ID, (0,)),) if forget else (),
        )
        self.epoch += 1
        return request

    def ask(self, *, offset: int | None = None, forget: bool = False) -> list[PartitionResponse]:
        """Gets the answers of the one partition when there is an answer at all."""
        request = self.request(offset=offset, forget=forget)
        assert self.link.may_apply(request)
        found: list[PartitionResponse] = []
        self.pool.brokers[1].fetches.handle(
            request,
            self.link,
            lambda topics: found.extend(entry for topic in topics for entry in topic.partitions),
        )
        return found


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[InProcessPool]:
    pool = InProcessPool(tmp_path, brokers=(1, 2))
    pool.lead(1)
    yield pool
    for number in tuple(pool.brokers):
        pool.kill(number)


def test_a_partition_is_asked_for_until_it_has_an_answer(pool: InProcessPool) -> None:
    session = Session(pool)
    session.ask(offset=0)
    pool.time.run(WAIT_MS)
    response = session.ask()
    pool.brokers[1].produce("a")
    pool.time.run(0)
    assert [len(entry.records) > 0 for entry in response] == [True]


def test_what_was_answered_with_records_is_not_sent_again_before_it_is_asked_again(
    pool: InProcessPool,
) -> None:
    session = Session(pool)
    pool.brokers[1].produce("a")
    assert session.ask(offset=0)[0].records
    response = session.ask()
    pool.brokers[1].produce("b")
    pool.time.run(WAIT_MS)
    assert response == []
    assert session.ask(offset=1)[0].records


def test_records_appended_while_no_fetch_is_under_way_are_in_the_next_answer(
    pool: InProcessPool,
) -> None:
    session = Session(pool)
    session.ask(offset=0)
    pool.time.run(WAIT_MS)
    pool.brokers[1].produce("a")
    assert session.ask()[0].records


def test_a_watermark_that_rose_meanwhile_is_told_without_being_asked(pool: InProcessPool) -> None:
    session = Session(pool)
    pool.brokers[1].produce("a")
    session.ask(offset=0)
    session.ask(offset=1)  # commits it
    pool.time.run(WAIT_MS)
    pool.brokers[1].partitions.delete_records("orders", 0, pool.brokers[1].replica().high_watermark)
    assert [(entry.high_watermark, entry.log_start_offset) for entry in session.ask()] == []
    pool.time.run(WAIT_MS)
    assert session.link.reported_positions[KEY] == (1, 1)


def test_what_is_forgotten_is_not_answered(pool: InProcessPool) -> None:
    session = Session(pool)
    session.ask(offset=0)
    pool.time.run(WAIT_MS)
    response = session.ask(forget=True)
    pool.brokers[1].produce("a")
    pool.time.run(WAIT_MS)
    assert response == []


def test_a_partition_that_is_led_elsewhere_now_is_refused_unasked(pool: InProcessPool) -> None:
    session = Session(pool)
    session.ask(offset=0)
    pool.time.run(WAIT_MS)
    response = session.ask()
    pool.lead(2)
    pool.time.run(0)
    assert [entry.error for entry in response] == [ErrorCode.FENCED_LEADER_EPOCH]


def test_a_question_of_a_former_leader_epoch_is_told_no_watermark_of_this_one(
    pool: InProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I2: its follower may hold other records there, and would show them as committed. Until there
    is room to judge the question anew nothing is said to it."""
    session = Session(pool)
    session.ask(offset=0)
    pool.time.run(WAIT_MS)
    pool.lead(2)
    pool.lead(1)
    pool.brokers[1].produce("a")
    pool.replicate(2, rounds=2)
    assert pool.brokers[1].replica().high_watermark == 1
    with monkeypatch.context() as room:
        room.setattr(follower_fetch, "_budget", lambda request: 0)
        response = session.ask()
        pool.time.run(WAIT_MS)
    assert response == []
    assert [entry.error for entry in session.ask()] == [ErrorCode.FENCED_LEADER_EPOCH]


def test_the_session_of_a_former_life_is_refused_once_a_later_one_is_known(
    pool: InProcessPool,
) -> None:
    session = Session(pool)
    session.ask(offset=0)
    pool.time.run(WAIT_MS)
    request = session.request()
    pool.brokers[2].broker_epoch = BrokerEpoch(pool.brokers[2].broker_epoch + 1)
    pool.push(1)
    found: list[ErrorCode] = []
    pool.brokers[1].fetches.handle(
        request,
        session.link,
        lambda topics: found.extend(entry.error for topic in topics for entry in topic.partitions),
    )
    assert found == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_session_takes_its_next_request_only_and_a_new_one_at_any_time(
    pool: InProcessPool,
) -> None:
    session = Session(pool)
    first = session.request(offset=0)
    following = session.request()
    assert not session.link.may_apply(following)
    pool.brokers[1].fetches.handle(first, session.link, lambda _: None)
    assert session.link.may_apply(following)
    for other in (
        following._replace(session_epoch=2),
        following._replace(session_id=7),
        following._replace(replica_id=3),
        following._replace(replica_epoch=99),
    ):
        assert not session.link.may_apply(other)
    assert session.link.may_apply(first)


def test_a_closed_connection_leaves_nothing_behind(pool: InProcessPool) -> None:
    session = Session(pool)
    response = session.ask(offset=0)
    pool.brokers[1].fetches.cancel(session.link)
    pool.brokers[1].produce("a")
    pool.time.run(WAIT_MS)
    assert response == []
    assert session.link.watched == {}


def test_what_comes_late_on_a_connection_that_its_follower_left_is_not_taken(
    pool: InProcessPool,
) -> None:
    """Else the leader believes an old position for as long as the later session has no reason to
    name the partition (seed 5200105)."""
    fetches = pool.brokers[1].fetches
    left, present = Session(pool), Session(pool)
    left.ask(offset=0)
    assert not fetches.is_left(left.link, left.request(offset=0))
    pool.brokers[1].produce("a")
    present.ask(offset=1)
    assert fetches.is_left(left.link, left.request(offset=0))
    left.epoch = 0
    assert fetches.is_left(left.link, left.request(offset=0))  # nor as a session that begins
    assert not fetches.is_left(present.link, present.request())
    # The next life has nothing to do with it.
    later = left.request(offset=0)._replace(replica_epoch=pool.brokers[2].broker_epoch + 1)
    assert not fetches.is_left(left.link, later)


def test_leader_knows_the_ends_of_its_followers(pool: InProcessPool) -> None:
    session = Session(pool)
    pool.brokers[1].produce("a")
    pool.brokers[1].produce("b")
    session.ask(offset=0)
    session.ask(offset=1)
    view = pool.brokers[1].partitions.replica("orders", 0)
    assert view is not None
    assert (view.log_end_offset, view.follower_ends) == (2, ((2, 1),))
    followed = pool.brokers[2].partitions.replica("orders", 0)
    assert followed is not None and followed.follower_ends == ()
