"""Steps that the safety scenarios of the controller share."""

from tidemark_operator.controller.core.placement import place
from tidemark_protocol.controller_messages import IsrProposal, ReplicaReport
from tidemark_protocol.ids import BrokerId, ControllerEpoch, LeaderEpoch, Offset
from tidemark_protocol.partition_state import Member, PartitionState

from tests.support.controller_harness import ORDERS, POOL, FakeBroker, Harness


def expand(state: PartitionState, *added: Member) -> IsrProposal:
    return IsrProposal(
        ORDERS,
        state.partition,
        state.leader_epoch,
        state.partition_epoch,
        (*state.in_sync_replicas, *added),
    )


def held(last_epoch: int, log_end: int, high_watermark: int = 0) -> ReplicaReport:
    return ReplicaReport(
        ORDERS, 0, LeaderEpoch(last_epoch), Offset(log_end), Offset(high_watermark)
    )


async def grow(harness: Harness, present: int, added: int, *, over: int = 3) -> None:
    """A topic of `present` partitions, over brokers 0 to `over` - 1."""
    ids = [BrokerId(number) for number in range(over)]
    assignments = place(added, 3, ids, first_partition=present)
    await harness.service.add_partitions(POOL, ORDERS, assignments, first=present)


async def successor(harness: Harness, epoch: int = 2) -> None:
    """Another controller process takes over; the old one is gone."""
    await harness.service.step_down()
    harness.service = harness.another_controller()
    await harness.service.load(ControllerEpoch(epoch))


async def clean_restart(
    harness: Harness, broker: FakeBroker, *replicas: ReplicaReport
) -> FakeBroker:
    again = FakeBroker(harness, broker.broker_id, f"{broker.incarnation}+", replicas=replicas)
    response = await again.register(clean_stop_epoch=broker.epoch)
    assert response.is_clean
    await again.catch_up()
    return again
