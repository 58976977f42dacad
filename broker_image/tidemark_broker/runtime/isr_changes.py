"""How often the ISR of a partition lost and won members while this broker led it, and why.

Counted from the states that were applied, so a change that an election brings counts with the
leader that it grants. Nothing is decided by these numbers: they are for /metrics and the audit.
"""

from collections.abc import Mapping
from enum import Enum

from tidemark_protocol.controller_messages import BrokerState, InSyncProposal
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import PartitionState


class ShrinkReason(Enum):
    LAG = "lag"  # this leader proposed it: the member fell behind
    FENCED = "fenced"  # the controller took it out: dead, silent or unclean
    PLANNED = "planned"  # it was stopping in order


class IsrChanges:
    def __init__(self) -> None:
        self.shrinks = dict.fromkeys(ShrinkReason, 0)
        self.expands = 0

    def note(
        self,
        before: PartitionState,
        after: PartitionState,
        brokers: Mapping[BrokerId, BrokerState],
        proposal: InSyncProposal | None,
    ) -> None:
        """`proposal`: this leader's own that was pending while `before` was true."""
        left = before.in_sync_ids - after.in_sync_ids
        proposed = (
            None if proposal is None else {m.broker_id for m in proposal.new_in_sync_replicas}
        )
        for reason in {_reason(broker_id, brokers, proposed) for broker_id in left}:
            self.shrinks[reason] += 1
        self.expands += bool(after.in_sync_ids - before.in_sync_ids)


def _reason(
    broker_id: BrokerId, brokers: Mapping[BrokerId, BrokerState], proposed: set[BrokerId] | None
) -> ShrinkReason:
    known = brokers.get(broker_id)
    if known is not None and known.is_stopping:
        return ShrinkReason.PLANNED
    return (
        ShrinkReason.LAG
        if proposed is not None and broker_id not in proposed
        else ShrinkReason.FENCED
    )
