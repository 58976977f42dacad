"""Throttle fetches for replicas that are moved to this broker (KIP-73).

A bucket of one second's bytes for the whole broker is shared by all leaders it follows. A fetch is
sent while something is left, and paid for when its answer arrives, so the bucket may be overdrawn
by what was under way; the next fetch waits for as long. Members of the ISR and replicas that only
catch up again are exempt: slowing them would cost the redundancy that a move has to keep.
"""


class ReassignmentThrottle:
    """The throttle; `now_ms` is monotonic."""

    def __init__(self) -> None:
        self._rate_bytes_per_second = 0
        self._left_bytes = 0.0
        self._since_ms = 0

    def set_rate(self, bytes_per_second: int, now_ms: int) -> None:
        """Set the rate; 0 is unlimited."""
        if bytes_per_second == self._rate_bytes_per_second:
            return
        self._rate_bytes_per_second = bytes_per_second
        self._left_bytes = float(bytes_per_second)
        self._since_ms = now_ms

    def allowance_bytes(self, now_ms: int, *, at_most: int) -> int:
        """Return how much may be fetched now; 0: nothing before `wake_at_ms`."""
        if self._rate_bytes_per_second == 0:
            return at_most
        self._fill(now_ms)
        return max(0, min(at_most, int(self._left_bytes)))

    def spend(self, size_bytes: int, now_ms: int) -> None:
        if self._rate_bytes_per_second:
            self._fill(now_ms)
            self._left_bytes -= size_bytes

    def wake_at_ms(self, now_ms: int) -> int:
        """Return when a tenth of a second's bytes is available.

        So fetches do not become tiny.
        """
        rate = self._rate_bytes_per_second
        if rate == 0:
            return now_ms
        missing = max(1.0, rate / 10) - self._left_bytes
        return now_ms + max(1, int(1000 * missing / rate) + 1)

    def _fill(self, now_ms: int) -> None:
        rate = self._rate_bytes_per_second
        earned = rate * max(0, now_ms - self._since_ms) / 1000
        self._left_bytes = min(float(rate), self._left_bytes + earned)
        self._since_ms = max(self._since_ms, now_ms)
