"""Count how many partitions a request may still add to its pool (spec.limits.maxPartitions)."""

from tidemark_protocol.error_codes import ErrorCode

from tidemark_operator.topic_admin.field_managers import RequestRejected


class Room:
    def __init__(self, limit: int, present: int) -> None:
        """Create the room; `present` are the partitions of the pool's slices.

        What other requests add at the same time is not known here: together they may exceed the
        limit by that.
        """
        self._limit = limit
        self._present = present
        self._taken: dict[str, int] = {}  # by topic

    def take(self, topic: str, partitions: int) -> RequestRejected | None:
        """Take room for a topic's partitions in place of what it held; return an error or None."""
        taken = sum(self._taken.values()) - self._taken.get(topic, 0)
        present = self._present + taken
        if present + partitions <= self._limit:
            self._taken[topic] = partitions
            return None
        return RequestRejected(
            ErrorCode.POLICY_VIOLATION,
            f"topic {topic}: {partitions} more partitions would make {present + partitions}"
            f" in the pool, above spec.limits.maxPartitions {self._limit}: delete topics, or"
            " raise the limit",
        )
