"""How soon a broker that is not registered asks again."""

from tidemark_broker.server.lifecycle_manager import (
    FIRST_RETRY_SECONDS,
    MAX_RETRY_SECONDS,
    REGISTER_TIMEOUT_MS,
    next_retry,
)


def test_after_an_attempt_that_hung_the_next_address_is_asked_at_once() -> None:
    delays = [0.0]
    for _ in range(6):
        delays.append(next_retry(delays[-1], attempt_seconds=0.01))
    assert delays[1:] == [0.05, 0.1, 0.2, 0.4, 0.8, MAX_RETRY_SECONDS]
    assert next_retry(MAX_RETRY_SECONDS, REGISTER_TIMEOUT_MS / 1000) == FIRST_RETRY_SECONDS
