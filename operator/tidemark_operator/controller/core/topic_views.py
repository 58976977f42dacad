"""Show each topic of one pool to reconcilers and status pages.

A view is made again only when one of its slices changed, or while it depends on more than slices:
for a partition without a leader, or a slice that is unreadable now.
"""

from collections.abc import Iterator, Set

from tidemark_protocol.ids import TopicId
from tidemark_protocol.partition_state import PartitionState

from tidemark_operator.api.partition_slice import PARTITIONS_PER_SLICE, PartitionSlice, slice_name
from tidemark_operator.controller.core.eligibility import Eligibility
from tidemark_operator.controller.core.leaderless_reasons import leaderless_sentence
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.core.views import TopicView

MAX_LEADERLESS_SENTENCES = 20  # a condition has an end


class TopicViews:
    def __init__(self, state: PoolState) -> None:
        self._state = state
        self._made: dict[TopicId, tuple[list[PartitionSlice], TopicView]] = {}

    def of(self, topic_id: TopicId, withheld: Set[str]) -> TopicView | None:
        """Return the topic's view; `withheld` are slices that are unreadable now (S3)."""
        slices = self._state.topic_slices(topic_id)
        made = self._made.get(topic_id)
        if made is not None and _are_the_same(made[0], slices) and not _any_in(slices, withheld):
            return made[1]
        self._made.pop(topic_id, None)
        if not slices:
            return None
        leaderless = list(_leaderless(slices))
        view = self._view(topic_id, slices, leaderless, withheld)
        if not leaderless and not _any_in(slices, withheld):
            self._made[topic_id] = (slices, view)
        return view

    def __len__(self) -> int:
        """Return how many views are kept."""
        return len(self._made)

    def forget(self, topic_id: TopicId) -> None:
        self._made.pop(topic_id, None)

    def _view(
        self,
        topic_id: TopicId,
        slices: list[PartitionSlice],
        leaderless: list[tuple[PartitionSlice, PartitionState]],
        withheld: Set[str],
    ) -> TopicView:
        count = max(value.topic.partition_count for value in slices)
        newest = slices[-1]
        present = {value.index for value in slices}
        expected = range(-(-count // PARTITIONS_PER_SLICE))
        choices = self._state.choices.items() if leaderless else ()
        recoveries = tuple(each for value in slices for each in value.recoveries)
        return TopicView(
            topic=newest.topic.counting(count),
            partitions=tuple(
                state
                for value in slices
                if value.name not in withheld
                for state in value.partitions
            ),
            object_name=newest.object_name,
            deletion_policy=newest.deletion_policy,
            is_retained=newest.is_retained,
            missing_slices=tuple(
                slice_name(newest.name_prefix, index) for index in expected if index not in present
            ),
            notices=self._notices(slices, leaderless),
            choices=tuple(choice for replica, choice in sorted(choices) if replica[0] == topic_id),
            recoveries=recoveries,
            slice_names=tuple(value.name for value in slices),
            elections=self._state.observations.elections,
        )

    # guard: condition-names-awaited-brokers (L6)
    def _notices(
        self,
        slices: list[PartitionSlice],
        leaderless: list[tuple[PartitionSlice, PartitionState]],
    ) -> tuple[str, ...]:
        in_sync = {s.partition: s.in_sync_ids for value in slices for s in value.partitions}
        notices = [
            election.sentence(in_sync.get(election.partition, ()))
            for value in slices
            for election in value.recoveries
        ]
        eligibility = self._state.eligibility() if leaderless else Eligibility({})
        for value, state in leaderless[:MAX_LEADERLESS_SENTENCES]:
            replica = (value.topic.topic_id, state.partition)
            evidence = self._state.evidence(replica, state, eligibility)
            lasts = self._state.observations.leaderless.is_lasting(value.topic.topic_id, state)
            notices.append(
                leaderless_sentence(value.topic, state, eligibility, evidence, is_lasting=lasts)
            )
        return tuple(notices)


def _leaderless(
    slices: list[PartitionSlice],
) -> Iterator[tuple[PartitionSlice, PartitionState]]:
    for value in slices:
        if not value.is_retained:
            yield from ((value, state) for state in value.partitions if not state.has_leader)


def _are_the_same(some: list[PartitionSlice], others: list[PartitionSlice]) -> bool:
    return len(some) == len(others) and all(map(_is, some, others))


def _is(one: PartitionSlice, other: PartitionSlice) -> bool:
    return one is other


def _any_in(slices: list[PartitionSlice], names: Set[str]) -> bool:
    return bool(names) and any(value.name in names for value in slices)
