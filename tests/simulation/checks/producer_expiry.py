"""Since when each producer is quiet, so that judges know whom a log may have forgotten (S24).

`producer.id.expiration.ms` counts by each broker's own clock, from its first look after the append
or after the log was opened: never from before the append, so by the fastest clock there is.
"""

from collections.abc import Callable
from math import inf

from tidemark_broker.kafka_wire.records.record_batch import BatchHeader
from tidemark_broker.log.producer_state_entry import last_sequence_of

FASTEST_CLOCK = 1.3  # fault_plan.py, clock_rate


class ProducerExpiry:
    def __init__(
        self, expires_after_ms: float = inf, now_us: Callable[[], int] = lambda: 0
    ) -> None:
        self._expires_after_us = expires_after_ms * 1000 / FASTEST_CLOCK
        # By (producer id, epoch, last sequence): when it was first seen in a log.
        self._written_us: dict[tuple[int, int, int], int] = {}
        self._now_us = now_us

    def record_written(self, header: BatchHeader) -> None:
        """A batch that some log has."""
        if header.producer_id >= 0:
            batch = (header.producer_id, header.producer_epoch, last_sequence_of(header))
            self._written_us.setdefault(batch, self._now_us())

    def may_be_over(self, producer_id: int, epoch: int, last_sequence: int) -> bool:
        """Of a producer whose last batch that is."""
        written_us = self._written_us.get((producer_id, epoch, last_sequence), 0)
        return self._now_us() - written_us >= self._expires_after_us
