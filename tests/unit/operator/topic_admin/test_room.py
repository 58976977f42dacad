"""How many partitions a request may still add to its pool."""

from tidemark_operator.topic_admin.room import Room
from tidemark_protocol.error_codes import ErrorCode


def test_a_request_may_fill_the_pool_and_no_more() -> None:
    assert Room(10, 7).take("orders", 3) is None
    rejected = Room(10, 7).take("orders", 4)
    assert rejected is not None
    assert rejected.error is ErrorCode.POLICY_VIOLATION
    assert "4 more partitions would make 11 in the pool" in rejected.message
    assert "spec.limits.maxPartitions 10" in rejected.message


def test_topics_of_one_request_share_the_room() -> None:
    room = Room(10, 0)
    assert room.take("orders", 6) is None
    assert room.take("payments", 5) is not None
    assert room.take("payments", 4) is None


def test_a_topic_that_is_judged_again_gives_back_what_it_held() -> None:
    room = Room(10, 0)
    assert room.take("orders", 8) is None
    assert room.take("orders", 9) is None
    assert room.take("payments", 2) is not None
    assert room.take("orders", 1) is None
    assert room.take("payments", 9) is None


def test_what_was_refused_takes_no_room() -> None:
    room = Room(10, 0)
    assert room.take("orders", 11) is not None
    assert room.take("payments", 10) is None


def test_a_pool_above_its_limit_has_room_for_nothing() -> None:
    assert Room(10, 12).take("orders", 1) is not None
