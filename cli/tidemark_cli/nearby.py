"""Which replica a consumer with a rack reads each partition from, as the leaders said (KIP-392).

A preference ends with the first refusal, and after a while of its own: then the leader is asked
again, because it may be nearer itself by now, or know of somebody who is.
"""

from collections.abc import Callable

PREFERENCE_SECONDS = 300.0  # Kafka: metadata.max.age.ms


class NearbyReplicas:
    """`now_seconds` is monotonic."""

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        self._now = now_seconds
        self._places: dict[tuple[str, int], tuple[str, float]] = {}

    def note(self, topic: str, partition: int, url: str) -> None:
        self._places[topic, partition] = (url, self._now() + PREFERENCE_SECONDS)

    def forget(self, topic: str, partition: int) -> None:
        self._places.pop((topic, partition), None)

    def url(self, topic: str, partition: int) -> str | None:
        """None: ask the leader."""
        url, until = self._places.get((topic, partition), (None, 0.0))
        return url if self._now() < until else None
