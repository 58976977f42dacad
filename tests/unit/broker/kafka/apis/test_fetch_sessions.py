"""Fetch sessions of consumers: how many partitions all of them remember at most."""

import pytest
from tidemark_broker.kafka.apis import fetch_sessions
from tidemark_broker.kafka.apis.fetch_sessions import MIN_IDLE_MS, FetchSession, FetchSessions
from tidemark_broker.kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset, TopicId

MOST = 10


@pytest.fixture(autouse=True)
def small_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS_OF_SESSIONS", MOST)


def request(session_id: int, epoch: int, topic: str, count: int) -> FetchRequest:
    partitions = tuple(FetchPartition(n, -1, Offset(0), -1, Offset(0), 1) for n in range(count))
    return FetchRequest(
        0, 0, 1, (FetchTopic(TopicId(""), partitions, topic),),
        session_id=session_id, session_epoch=epoch,
    )  # fmt: skip


def opened(sessions: FetchSessions, count: int, now_ms: int = 0) -> FetchSession | None:
    session = sessions.find(request(0, 0, "t", count), now_ms)
    assert not isinstance(session, ErrorCode)
    return session


def test_a_session_that_grows_beyond_the_bound_is_dropped() -> None:
    sessions = FetchSessions(1)
    session = opened(sessions, MOST - 2)
    assert session is not None
    assert sessions.find(request(session.session_id, 1, "more", 2), 0) is session
    again = sessions.find(request(session.session_id, 2, "again", 1), 0)
    assert again is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0
    assert opened(sessions, MOST) is not None


def test_no_session_is_opened_beyond_the_bound_until_another_is_idle() -> None:
    sessions = FetchSessions(1)
    assert opened(sessions, MOST) is not None
    assert opened(sessions, 1) is None
    assert opened(sessions, MOST + 1, MIN_IDLE_MS) is None
    assert opened(sessions, 1, MIN_IDLE_MS) is not None
    assert len(sessions) == 1


def test_what_is_forgotten_makes_room() -> None:
    sessions = FetchSessions(1)
    session = opened(sessions, MOST)
    assert session is not None
    forgotten = request(session.session_id, 1, "u", 2)._replace(
        forgotten=(("t", TopicId(""), (0, 1)),)
    )
    assert sessions.find(forgotten, 0) is session
    assert opened(sessions, 1) is None
