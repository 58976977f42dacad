"""The invariants of docs/design/invariants.md that a small world can show, asked after every move.

Written from the statements, not from the code that keeps them. Each answer is "" or a sentence
that begins with the invariant's number.
"""

from tidemark_operator.controller.core.eligibility import Eligibility
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import Member, PartitionState

from tests.model.model_cluster import Cluster, has_record
from tests.model.small_broker import SmallBroker
from tests.model.small_controller import REPLICA


def broken_by(before: Cluster | None, after: Cluster) -> str:
    """What the move from `before` to `after` broke."""
    broken = "" if before is None else broken_on_the_way(before, after)
    return broken or broken_in(after)


def broken_on_the_way(before: Cluster, after: Cluster) -> str:
    """What only the move itself shows."""
    return after.broken or _moved_replicas(before, after) or _slice(before, after)


def broken_in(cluster: Cluster) -> str:
    """What the state shows, however it was reached."""
    return cluster.broken or _replicas(cluster) or _complete_logs(cluster) or _leaders(cluster)


def _replicas(cluster: Cluster) -> str:
    running = [broker for broker in cluster.brokers if broker.process is not None]
    for broker in running:
        log, watermark = broker.log, broker.high_watermark
        if not log.log_start_offset <= watermark <= log.log_end_offset:  # I1
            return f"I1: {broker.broker_id} has watermark {watermark} and log {log}"
        epochs = [epoch for epoch, _ in log.records]
        if epochs != sorted(epochs):
            return f"I5: epochs of {broker.broker_id} fall, {log}"
        for offset in range(log.log_start_offset, log.log_end_offset):
            covering = [epoch for epoch, start in log.epochs if start <= offset]
            if not covering or covering[-1] != log.record(offset)[0]:
                return f"I5: {broker.broker_id}, offset {offset} is not in its epochs {log.epochs}"
    for i, one in enumerate(running):
        for other in running[i + 1 :]:
            first = max(one.log.log_start_offset, other.log.log_start_offset)
            for offset in range(first, min(one.high_watermark, other.high_watermark)):
                if one.log.record(offset) != other.log.record(offset):
                    return f"I3: {one.broker_id} and {other.broker_id} differ at offset {offset}"
    return ""


def _complete_logs(cluster: Cluster) -> str:
    """I6: whoever may lead, and whoever leads, has what was committed."""
    if not cluster.committed:
        return ""
    state, eligibility = cluster.store.partition, cluster.controller.eligibility()
    for member in state.in_sync_replicas + state.eligible_leaders:
        broker = cluster.brokers[member.broker_id]
        is_invalid = member.broker_epoch <= broker.lost_in or not eligibility.is_valid(
            member, REPLICA, cluster.setting.flush
        )
        missing = _missing(cluster, broker)
        if missing and not is_invalid:
            return f"I6: {_shown(member)} may lead and lacks {missing}"
    for broker in cluster.brokers:
        leader = broker.process.leader if broker.process else None
        if leader is not None and leader.leader_epoch == state.leader_epoch:
            missing = _missing(cluster, broker)
            if missing:
                return f"I6: {broker.broker_id} leads and lacks {missing}"
    return ""


def _missing(cluster: Cluster, broker: SmallBroker) -> str:
    return " ".join(
        f"{value}@{epoch}"
        for offset, (epoch, value) in enumerate(cluster.committed)
        if not has_record(broker.log, offset, (epoch, value))
    )


def _leaders(cluster: Cluster) -> str:
    state = cluster.store.partition
    acting: dict[int, int] = {}
    for broker in cluster.brokers:
        leader = broker.process.leader if broker.process else None
        if leader is None:
            continue
        epoch = leader.leader_epoch
        if epoch in acting:
            return f"I11: {acting[epoch]} and {broker.broker_id} lead in epoch {epoch}"
        acting[epoch] = broker.broker_id
        if epoch != state.leader_epoch:
            continue
        if state.leader != broker.broker_id:
            return f"I11: {broker.broker_id} leads in epoch {epoch}, granted to {state.leader}"
        maximal = set(leader.maximal_in_sync_replicas)
        # By broker: the controller may have renewed the entry of a life that stopped cleanly.
        if not state.in_sync_ids <= {member.broker_id for member in maximal}:
            return f"I15: {broker.broker_id} waits for less than the ISR of the slice"
        is_settled = leader.pending_proposal is None
        if (
            is_settled
            and leader.state.partition_epoch == state.partition_epoch
            and maximal != set(state.in_sync_replicas)
        ):
            return f"I15: {broker.broker_id} has another ISR than the slice at its partition epoch"
    return ""


def _moved_replicas(before: Cluster, after: Cluster) -> str:
    for broker_id in after.moved:
        old, new = before.brokers[broker_id], after.brokers[broker_id]
        if old.process is None or new.process is None:
            continue
        if old.process.broker_epoch != new.process.broker_epoch:
            continue
        if new.high_watermark < old.high_watermark:
            return (
                f"I2: watermark of {new.broker_id} goes back from {old.high_watermark}"
                f" to {new.high_watermark}"
            )
        if new.process.leader_epoch < old.process.leader_epoch:
            return f"I14: {new.broker_id} goes back to leader epoch {new.process.leader_epoch}"
    return ""


def _slice(before: Cluster, after: Cluster) -> str:
    old, new = before.store.partition, after.store.partition
    if old == new:
        return ""
    eligibility = after.controller.eligibility()
    return _epochs(old, new) or _members(after, new, eligibility) or _eligible(after, old, new)


def _epochs(old: PartitionState, new: PartitionState) -> str:
    if new.partition_epoch <= old.partition_epoch or new.leader_epoch < old.leader_epoch:
        return "I14: an epoch of the slice falls, or changes without a new partition epoch"
    has_other_leader = (old.leader, old.leader_broker_epoch) != (
        new.leader,
        new.leader_broker_epoch,
    )
    if has_other_leader and new.leader_epoch == old.leader_epoch:
        return "I14: another leader without another leader epoch"
    return ""


def _members(cluster: Cluster, new: PartitionState, eligibility: Eligibility) -> str:
    in_sync = new.in_sync_ids
    eligible = {member.broker_id for member in new.eligible_leaders}
    if in_sync & eligible or not in_sync | eligible <= set(new.replicas):
        return "I12: ISR and eligible leaders overlap, or hold others than replicas"
    if not new.has_leader:
        return ""
    if new.leader not in in_sync:
        return "I12: the leader is not in the ISR"
    if cluster.controller.known != new:
        return ""  # a deposed controller's write: the present one acts when it reads it
    broker_eligibility = eligibility.of(new.leader)
    grant = Member(new.leader, new.leader_broker_epoch)
    if (
        broker_eligibility is None
        or not broker_eligibility.is_live
        or not eligibility.is_valid(grant, REPLICA, cluster.setting.flush)
    ):
        return f"I12: {_shown(grant)} leads, fenced or by a void entry"
    return ""


def _eligible(cluster: Cluster, old: PartitionState, new: PartitionState) -> str:
    """I13. A write of a deposed controller may know less of what is void."""
    found = {member.broker_id for member in new.eligible_leaders}
    if cluster.controller.unclean_recovery is not None:
        return "" if not found else "I13: eligible leaders of a history that has ended"
    if cluster.setting.commit_rule == "Isr" or len(new.in_sync_replicas) >= new.min_insync_replicas:
        return "" if not found else "I13: eligible leaders although the ISR says enough"
    eligibility = cluster.controller.eligibility()
    expected: set[BrokerId] = set()
    for member in old.eligible_leaders + old.in_sync_replicas:
        if member.broker_id not in new.in_sync_ids and member.broker_id in new.replicas:
            is_valid = eligibility.is_valid(member, REPLICA, cluster.setting.flush)
            expected |= {member.broker_id} if is_valid else set()
    is_own_write = cluster.controller.known == new
    if found != expected if is_own_write else not found >= expected:
        return f"I13: eligible leaders {sorted(found)}, expected {sorted(expected)}"
    return ""


def _shown(member: Member) -> str:
    return f"{member.broker_id}@{member.broker_epoch}"
