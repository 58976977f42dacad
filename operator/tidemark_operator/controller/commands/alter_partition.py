"""Decide ISR proposals of one pool, slice by slice, on what is stored.

`core/isr.py` checks a proposal; here each slice is one compare-and-set.
"""

from tidemark_protocol.controller_messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrProposal,
    IsrResult,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import PartitionState

from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.core.decision import ChangeSlices, Evaluate, Steps
from tidemark_operator.controller.core.eligibility import Eligibility
from tidemark_operator.controller.core.isr import checked_proposal
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.core.reassignment import is_moving
from tidemark_operator.controller.core.timeline import Cause


def alter_partition(
    pool: PoolState, request: AlterPartitionRequest
) -> Steps[AlterPartitionResponse]:
    """Return the results of proposals; none for a slice that could not be written (S3).

    The leader proposes again.
    """
    if pool.current(request.broker_id, request.broker_epoch) is None:
        return AlterPartitionResponse(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {request.broker_id}: broker epoch {request.broker_epoch} is not the"
            " registered one: register again",
            pool.controller_epoch,
        )
    responses, by_slice = _sorted_by_slice(pool, request.proposals)
    checked = {
        name: CheckedSlice(pool, request.broker_id, proposals)
        for name, proposals in by_slice.items()
    }
    if checked:
        outcome = yield ChangeSlices({name: each.decide for name, each in checked.items()})
        for name, each in checked.items():
            if name in outcome.stored:
                responses.extend(each.answers)
    moving = {a.topic_id: None for a in responses if a.state is not None and is_moving(a.state)}
    if moving:
        yield Evaluate(tuple(moving))  # it may have been the last one that a move waited for
    return AlterPartitionResponse(
        ErrorCode.NONE,
        controller_epoch=pool.controller_epoch,
        answers=tuple(responses),
    )


def _sorted_by_slice(
    pool: PoolState, proposals: tuple[IsrProposal, ...]
) -> tuple[list[IsrResult], dict[str, list[IsrProposal]]]:
    requested = [(proposal.topic_id, proposal.partition) for proposal in proposals]
    places = {
        replica: value.name
        for replica, (value, state) in pool.places_of(requested).items()
        if state.has_leader or not value.is_retained  # it is led while it moves
    }
    unknown: list[IsrResult] = []
    by_slice: dict[str, list[IsrProposal]] = {}
    for proposal in proposals:
        name = places.get((proposal.topic_id, proposal.partition))
        if name is not None:
            by_slice.setdefault(name, []).append(proposal)
            continue
        slices = pool.topic_slices(proposal.topic_id)
        is_known_topic = any(not value.is_retained and value.partitions for value in slices)
        error = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_known_topic else ErrorCode.UNKNOWN_TOPIC_ID
        )
        unknown.append(IsrResult(proposal.topic_id, proposal.partition, error))
    return unknown, by_slice


class CheckedSlice:
    """The proposals for one slice, and their results from what was stored when last decided."""

    def __init__(self, pool: PoolState, sender: BrokerId, proposals: list[IsrProposal]) -> None:
        self._pool = pool
        self._sender = sender
        self._proposals = proposals
        self.answers: list[IsrResult] = []

    def decide(self, stored: PartitionSlice) -> PartitionSlice:
        self.answers.clear()
        eligibility = self._pool.eligibility()
        partitions = {state.partition: state for state in stored.partitions}
        for proposal in self._proposals:
            verdict = checked_proposal(
                stored.topic,
                partitions[proposal.partition],
                eligibility,
                sender=self._sender,
                proposal=proposal,
            )
            self._explain(stored, partitions[proposal.partition], verdict.partition, eligibility)
            partitions[proposal.partition] = verdict.partition
            self.answers.append(
                IsrResult(proposal.topic_id, proposal.partition, verdict.error, verdict.partition)
            )
        return stored.with_partitions(tuple(partitions[n] for n in stored.numbers))

    def _explain(
        self,
        stored: PartitionSlice,
        before: PartitionState,
        after: PartitionState,
        eligibility: Eligibility,
    ) -> None:
        is_changed = after.in_sync_replicas != before.in_sync_replicas
        cause = Cause.PROPOSAL if is_changed else Cause.REJECTION
        self._pool.explain(stored.topic, before, after, cause, eligibility, proposer=self._sender)
