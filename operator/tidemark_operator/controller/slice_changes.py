"""Change many slices of one pool in one decision.

A few slices are decided at a time, and the loop has its turn in between: neither heartbeats nor the
Lease wait for a large pool. The brokers' eligibility is read once, at the beginning, so that no
broker is elected that falls by the same event; each slice is one compare-and-set (S3). Callers hold
the pool's turn: alone, or concurrently with others for the topics that they hold.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from tidemark_protocol.ids import TopicId

from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.core.decision import Decide, Deferred, Outcome
from tidemark_operator.controller.core.eligibility import BrokerEligibility, Eligibility
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.slice_store import ControllerSuperseded, SliceStore

logger = logging.getLogger(__name__)

# Some ten milliseconds of the loop. A slice costs as much as some partitions.
PARTITIONS_AT_A_TIME = 512
SLICE_COSTS = 3
WRITES_AT_ONCE = 64


class SliceChanges:
    def __init__(
        self, state: PoolState, slice_store: SliceStore, *, on_deferred: Callable[[], None]
    ) -> None:
        self._state = state
        self._slice_store = slice_store
        self._on_deferred = on_deferred

    async def evaluate(
        self, *overriding: BrokerEligibility, topics: Collection[TopicId] | None = None
    ) -> bool:
        """Evaluate all slices, or those of some topics.

        Slices with a partition that may need another leader come first. Returns False if one is
        deferred to a tick.
        """
        state = self._state
        eligibility = state.eligibility(*overriding)
        counts = state.leader_counts()

        def again(value: PartitionSlice) -> PartitionSlice:
            return state.slice_after_elections(value, eligibility, state.leader_counts())

        def decided(value: PartitionSlice) -> Decide | None:
            wanted = state.slice_after_elections(value, eligibility, counts)
            if value.name in self._slice_store.outcome_unknown:
                return again
            return None if wanted is value else _first_then(value, wanted, again)

        urgent, others = _by_urgency(self._values(topics), eligibility)
        is_done = await self._decide_each(urgent, decided)
        return await self._decide_each(others, decided) and is_done

    async def balance(self) -> None:
        """Move leadership back to preferred replicas where that evens it out (L5)."""
        state = self._state
        eligibility, counts = state.eligibility(), state.leader_counts()

        def unchanged(stored: PartitionSlice) -> PartitionSlice:
            return stored  # balancing is no matter of safety: the next pass looks again

        def decided(value: PartitionSlice) -> Decide | None:
            wanted = state.balanced_slice(value, eligibility, counts)
            return None if wanted is value else _first_then(value, wanted, unchanged)

        await self._decide_each(self._values(None), decided)

    async def write(self, decisions: Mapping[str, Decide]) -> Outcome:
        """Write slices by name; those that are deferred are left to a tick."""
        waiting = deque(decisions.items())
        stored: dict[str, PartitionSlice] = {}
        deferred: list[str] = []

        async def write_some() -> None:
            while waiting:
                name, decide = waiting.popleft()
                try:
                    written = await self._write(name, decide)
                except Deferred as error:
                    self._on_deferred()
                    logger.warning(
                        "slice write deferred", extra={"slice": name, "error": str(error)}
                    )
                    deferred.append(name)
                else:
                    if written is not None:
                        stored[name] = written

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(WRITES_AT_ONCE, len(waiting))):
                    tasks.create_task(write_some(), name="slice writes")
        except ExceptionGroup as failed:
            superseded = [
                error for error in failed.exceptions if isinstance(error, ControllerSuperseded)
            ]
            raise (superseded or failed.exceptions)[0] from failed
        return Outcome(stored, is_complete=not deferred)

    async def _write(self, name: str, decide: Decide) -> PartitionSlice | None:
        value = self._state.slices.get(name)
        return None if value is None else await self._slice_store.change(value, decide)

    def _values(self, topics: Collection[TopicId] | None) -> list[PartitionSlice]:
        if topics is None:
            return list(self._state.slices.values())
        return [value for topic_id in topics for value in self._state.topic_slices(topic_id)]

    async def _decide_each(
        self, values: list[PartitionSlice], decided: Callable[[PartitionSlice], Decide | None]
    ) -> bool:
        is_done = True
        for some in _a_few_at_a_time(values):
            decisions: dict[str, Decide] = {}
            for value in some:
                known = self._state.slices.get(value.name)
                decide = None if known is None else decided(known)
                if decide is not None:
                    decisions[value.name] = decide
            is_done = (await self.write(decisions)).is_complete and is_done
            await asyncio.sleep(0)
        return is_done


def _first_then(known: PartitionSlice, wanted: PartitionSlice, again: Decide) -> Decide:
    """Return what was decided together with the other slices, while the slice is unchanged."""
    return lambda stored: wanted if stored is known else again(stored)


def _a_few_at_a_time(values: Iterable[PartitionSlice]) -> Iterator[list[PartitionSlice]]:
    some: list[PartitionSlice] = []
    count = 0
    for value in values:
        some.append(value)
        count += len(value.partitions) + SLICE_COSTS
        if count >= PARTITIONS_AT_A_TIME:
            yield some
            some, count = [], 0
    if some:
        yield some


def _by_urgency(
    values: Iterable[PartitionSlice], eligibility: Eligibility
) -> tuple[list[PartitionSlice], list[PartitionSlice]]:
    urgent: list[PartitionSlice] = []
    others: list[PartitionSlice] = []
    for value in values:
        (urgent if _may_need_a_leader(value, eligibility) else others).append(value)
    return urgent, others


def _may_need_a_leader(value: PartitionSlice, eligibility: Eligibility) -> bool:
    if value.is_retained:
        return False
    return any(
        not eligibility.may_lead_on(state.leader, state.leader_broker_epoch)
        for state in value.partitions
    )
