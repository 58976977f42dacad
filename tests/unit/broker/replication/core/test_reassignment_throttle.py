"""How fast a broker fetches what is moved to it."""

from tidemark_broker.replication.core.reassignment_throttle import ReassignmentThrottle


def throttle(rate: int, now_ms: int = 0) -> ReassignmentThrottle:
    made = ReassignmentThrottle()
    made.set_rate(rate, now_ms)
    return made


def test_without_a_rate_everything_may_be_asked_for() -> None:
    free = throttle(0)
    free.spend(10**9, 0)
    assert free.allowance_bytes(0, at_most=77) == 77


def test_what_was_fetched_is_paid_for_also_when_it_was_more_than_was_left() -> None:
    made = throttle(1000)
    assert made.allowance_bytes(0, at_most=5000) == 1000
    made.spend(1500, 0)  # one large batch comes whole
    assert made.allowance_bytes(400, at_most=5000) == 0
    assert made.allowance_bytes(600, at_most=5000) == 100


def test_an_idle_second_saves_no_more_than_a_second() -> None:
    made = throttle(1000)
    made.spend(1000, 0)
    assert made.allowance_bytes(60_000, at_most=5000) == 1000


def test_over_a_minute_the_rate_is_kept() -> None:
    made, now_ms, fetched = throttle(1_000_000), 0, 0
    while now_ms < 60_000:
        requested = made.allowance_bytes(now_ms, at_most=1 << 20)
        if requested == 0:
            now_ms = made.wake_at_ms(now_ms)
            continue
        made.spend(requested + 300, now_ms)  # whole batches: a little more than asked
        fetched += requested + 300
        now_ms += 1
    assert 59_000_000 < fetched < 61_500_000


def test_a_new_rate_counts_from_now() -> None:
    made = throttle(1000)
    made.spend(100_000, 0)
    made.set_rate(2000, 5)
    assert made.allowance_bytes(5, at_most=5000) == 2000
