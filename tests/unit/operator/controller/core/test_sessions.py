"""Session expiry, the controller's own stall, and the mass-expiry guard (S18)."""

from tidemark_operator.controller.core.sessions import Expiry, Sessions
from tidemark_operator.controller.core.settings import ControllerSettings
from tidemark_protocol.ids import BrokerId

SETTINGS = ControllerSettings()


def of_pool(*ids: int, at_ms: int = 0, is_second_opinion: bool = False) -> Sessions:
    sessions = Sessions(SETTINGS)
    brokers = [BrokerId(i) for i in ids]
    sessions.grant_all(brokers, at_ms, is_second_opinion=is_second_opinion)
    return sessions


def heard(sessions: Sessions, now_ms: int, *ids: int) -> None:
    for broker_id in ids:
        sessions.contact(BrokerId(broker_id), now_ms)


def test_silence_fences_at_the_session_timeout_and_not_before() -> None:
    sessions = of_pool(0, 1, 2)
    heard(sessions, 2500, 1, 2)
    assert sessions.expire(2999, pool_size=3) == Expiry(())
    assert sessions.expire(3000, pool_size=3) == Expiry((BrokerId(0),))
    assert sessions.expire(3050, pool_size=3) == Expiry(())


def test_brokers_that_expired_together_are_one_event() -> None:
    sessions = of_pool(0, 1, 2, 3, 4)
    heard(sessions, 2900, 2, 3, 4)
    assert sessions.expire(3100, pool_size=5).expired == (0, 1)


def test_the_controllers_own_stall_is_nobodys_silence() -> None:
    sessions = of_pool(0, 1, 2)
    sessions.extend(5000, now_ms=5500)
    assert sessions.silence_ms(BrokerId(0), 5500) == 500
    assert sessions.expire(5500, pool_size=3) == Expiry(())


def test_an_extension_never_reaches_into_the_future() -> None:
    sessions = of_pool(0, at_ms=900)
    sessions.extend(5000, now_ms=1000)
    assert sessions.silence_ms(BrokerId(0), 1000) == 0


def test_more_than_half_of_a_pool_silent_is_for_another_controller_to_judge() -> None:
    sessions = of_pool(0, 1, 2)
    heard(sessions, 2900, 2)
    silent = ((BrokerId(0), 3000), (BrokerId(1), 3000))
    assert sessions.expire(3000, pool_size=3) == Expiry((), held_back=silent)
    heard(sessions, 8900, 2)
    still = ((BrokerId(0), 9000), (BrokerId(1), 9000))
    assert sessions.expire(9000, pool_size=3) == Expiry((), held_back=still)


def test_a_second_opinion_fences_whom_it_did_not_hear_for_a_full_session_either() -> None:
    sessions = of_pool(0, 1, 2, is_second_opinion=True)
    heard(sessions, 2900, 2)
    assert sessions.expire(2999, pool_size=3) == Expiry(())
    assert sessions.expire(3000, pool_size=3).expired == (0, 1)


def test_a_second_opinion_that_heard_them_is_a_first_one_when_they_fall_silent_later() -> None:
    sessions = of_pool(0, 1, 2, is_second_opinion=True)
    heard(sessions, 1000, 0, 1)
    heard(sessions, 3900, 2)
    assert sessions.expire(4000, pool_size=3).held_back == ((0, 3000), (1, 3000))


def test_the_last_two_of_a_large_pool_are_more_than_half_of_those_that_were_heard() -> None:
    sessions = of_pool(0, 1)
    assert sessions.expire(3000, pool_size=5).held_back == ((0, 3000), (1, 3000))


def test_the_guard_sees_those_that_fell_silent_with_the_first_but_polled_a_little_later() -> None:
    sessions = Sessions(SETTINGS)
    heard(sessions, 0, 0)
    heard(sessions, 240, 1)
    heard(sessions, 480, 2)
    silent = ((0, 3000), (1, 2760), (2, 2520))  # as whoever reads it in a log sees them
    assert sessions.expire(3000, pool_size=3).held_back == silent


def test_brokers_that_were_heard_a_second_ago_are_no_part_of_a_silence() -> None:
    """As measured: one of five stood still, three were late with a heartbeat, and the controller
    doubted itself."""
    sessions = of_pool(0, 1, 2, 3, 4)
    heard(sessions, 1300, 1, 2, 3)
    heard(sessions, 2900, 4)
    assert sessions.expire(3000, pool_size=5) == Expiry((BrokerId(0),))


def test_who_was_told_to_stop_or_is_known_to_be_dead_is_not_expected_to_speak() -> None:
    sessions = of_pool(0, 1, 2, 3, 4)
    for known in (0, 1):
        sessions.end(BrokerId(known))
    heard(sessions, 2900, 3, 4)
    assert sessions.expire(3000, pool_size=5) == Expiry((BrokerId(2),))


def test_just_after_its_own_stall_a_controller_doubts_neither_itself_nor_its_brokers() -> None:
    """They may have spoken meanwhile, and wait unread; for a second, which is two heartbeats."""
    sessions = of_pool(0, 1, 2)
    sessions.extend(200, now_ms=3100)
    assert sessions.expire(3250, pool_size=3) == Expiry(())
    silent = tuple((BrokerId(each), 3900) for each in range(3))
    assert sessions.expire(4100, pool_size=3) == Expiry((), held_back=silent)


def test_a_controller_that_stalls_again_and_again_doubts_itself_in_the_end() -> None:
    sessions = of_pool(0, 1, 2)
    now_ms, held_back = 0, 0
    while not held_back:
        now_ms += 250
        sessions.extend(100, now_ms)
        held_back = len(sessions.expire(now_ms, pool_size=3).held_back)
        assert now_ms < 10_000
    assert now_ms >= 8000


def test_the_guard_ends_when_the_others_are_heard_again() -> None:
    sessions = of_pool(0, 1, 2)
    sessions.expire(3000, pool_size=3)
    heard(sessions, 3100, 1, 2)
    assert sessions.expire(3150, pool_size=3).expired == (0,)


def test_small_pools_have_no_guard() -> None:
    assert of_pool(0, 1).expire(3000, pool_size=2).expired == (0, 1)


def test_half_of_a_pool_is_not_more_than_half() -> None:
    sessions = of_pool(0, 1, 2, 3)
    heard(sessions, 2900, 2, 3)
    assert sessions.expire(3000, pool_size=4).expired == (0, 1)
