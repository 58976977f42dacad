"""Decide ISR proposals of one pool, slice by slice, on what is stored.

`core/isr.py` checks a proposal; here each slice is one compare-and-set.
"""

import asyncio

from tidemark_protocol.controller_messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrProposal,
    IsrResult,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.core.isr import checked_proposal
from tidemark_operator.controller.core.reassignment import is_moving
from tidemark_operator.controller.pool_loop import PoolLoop
from tidemark_operator.controller.slice_store import Deferred


async def alter_partition(pool: PoolLoop, request: AlterPartitionRequest) -> AlterPartitionResponse:
    async with pool.lock:
        record = pool.current(request.broker_id, request.broker_epoch)
        if record is None:
            return AlterPartitionResponse(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {request.broker_id}: broker epoch {request.broker_epoch} is not the"
                " registered one: register again",
                pool.state.controller_epoch,
            )
        answers, by_slice = _sorted_by_slice(pool, request.proposals)
        judgements = (
            _check_slice(pool, pool.state.slices[name], request.broker_id, proposals)
            for name, proposals in by_slice.items()
        )
        for checked_slice in await asyncio.gather(*judgements):
            answers.extend(checked_slice)
        moving = {a.topic_id: None for a in answers if a.state is not None and is_moving(a.state)}
        if moving:
            await pool.evaluate(
                topics=moving
            )  # it may have been the last one that a move waited for
    return AlterPartitionResponse(
        ErrorCode.NONE,
        controller_epoch=pool.state.controller_epoch,
        answers=tuple(answers),
    )


def _sorted_by_slice(
    pool: PoolLoop, proposals: tuple[IsrProposal, ...]
) -> tuple[list[IsrResult], dict[str, list[IsrProposal]]]:
    requested = [(proposal.topic_id, proposal.partition) for proposal in proposals]
    places = {
        replica: value.name
        for replica, (value, state) in pool.state.places_of(requested).items()
        if state.has_leader or not value.is_retained  # it is led while it moves
    }
    unknown: list[IsrResult] = []
    by_slice: dict[str, list[IsrProposal]] = {}
    for proposal in proposals:
        name = places.get((proposal.topic_id, proposal.partition))
        if name is not None:
            by_slice.setdefault(name, []).append(proposal)
            continue
        slices = pool.state.topic_slices(proposal.topic_id)
        is_known_topic = any(not value.is_retained and value.partitions for value in slices)
        error = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_known_topic else ErrorCode.UNKNOWN_TOPIC_ID
        )
        unknown.append(IsrResult(proposal.topic_id, proposal.partition, error))
    return unknown, by_slice


async def _check_slice(
    pool: PoolLoop, value: PartitionSlice, sender: BrokerId, proposals: list[IsrProposal]
) -> list[IsrResult]:
    """Return the results of a slice's proposals from what is stored.

    None at all if the write's outcome is unknown: the leader asks again (S3).
    """
    answers: list[IsrResult] = []

    def decide(stored: PartitionSlice) -> PartitionSlice:
        answers.clear()
        eligibility = pool.state.eligibility()
        partitions = {state.partition: state for state in stored.partitions}
        for proposal in proposals:
            verdict = checked_proposal(
                stored.topic,
                partitions[proposal.partition],
                eligibility,
                sender=sender,
                proposal=proposal,
            )
            partitions[proposal.partition] = verdict.partition
            answers.append(
                IsrResult(proposal.topic_id, proposal.partition, verdict.error, verdict.partition)
            )
        return stored.with_partitions(tuple(partitions[n] for n in stored.numbers))

    try:
        written = await pool.slice_store.change(value, decide)
    except Deferred:
        pool.is_dirty = True
        return []
    return answers if written is not None else []
