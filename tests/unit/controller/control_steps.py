"""Steps that the safety scenarios of the controller share."""

from tidemark_protocol.controller_messages import InSyncProposal, ReplicaReport
from tidemark_protocol.ids import ControllerEpoch, LeaderEpoch, Offset
from tidemark_protocol.partition_state import Member, PartitionState

from tests.unit.controller.control_rig import ORDERS, FakeBroker, Rig


def expand(state: PartitionState, *added: Member) -> InSyncProposal:
    return InSyncProposal(
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


async def successor(rig: Rig, epoch: int = 2) -> None:
    """Another controller process takes over; the old one is gone."""
    await rig.service.step_down()
    rig.service = rig.another_controller()
    await rig.service.load(ControllerEpoch(epoch))


async def clean_restart(rig: Rig, broker: FakeBroker, *replicas: ReplicaReport) -> FakeBroker:
    again = FakeBroker(rig, broker.broker_id, f"{broker.incarnation}+", replicas=replicas)
    response = await again.register(clean_stop_epoch=broker.epoch)
    assert response.is_clean
    await again.catch_up()
    return again
