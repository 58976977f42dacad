"""Which moves a world offers, and which of them cost a fault.

A move that would change nothing is left out. Faults: a message or a write that stays on its way, a
process killed, a live broker fenced, a follower that lags, another controller, another min ISR. The
rest is free and may come at any time: that is what makes every interleaving one of ours.
"""

from collections.abc import Iterator

from tidemark_protocol.ids import BrokerId

from tests.model.in_flight import FetchInFlight, ResponseInFlight
from tests.model.model_cluster import Cluster
from tests.model.small_broker import NOW_MS, SmallBroker

Move = tuple[str, int]  # a line of a transcript, the faults that it costs

# A leader that has not heard of a fence proposes, is refused, and may go on so for ever.
MAX_PARTITION_EPOCH = 5


KINDS = ("kill", "fence", "lag", "fetch", "propose", "controller", "min-isr")


def moves(
    cluster: Cluster, *, records_left: int, faults_left: int, kinds: tuple[str, ...] = KINDS
) -> Iterator[Move]:
    for broker in cluster.brokers:
        if broker.process is None:
            yield from _of_a_dead_one(broker)
        else:
            yield from _of_a_process(cluster, broker, records_left)
    yield from _of_the_wire(cluster)
    yield from _of_the_controller(cluster)
    if faults_left:
        for line in _faults(cluster):
            if line.partition(" ")[0] in kinds:
                yield line, 1


def _of_a_dead_one(broker: SmallBroker) -> Iterator[Move]:
    yield f"restart {broker.broker_id} proof", 0
    if broker.log.log_end_offset:
        yield f"restart {broker.broker_id} keep=0", 0
    if broker.settings.flushes_always:
        yield f"restart {broker.broker_id} disk keep={broker.synced_end}", 0


def _of_a_process(cluster: Cluster, broker: SmallBroker, records_left: int) -> Iterator[Move]:
    me, process = broker.broker_id, broker.process
    assert process is not None
    brokers, state = cluster.controller.image()
    if brokers != process.brokers or (state is not None and state != process.state):
        yield f"push {me}", 0
    state_epoch = cluster.store.partition.partition_epoch
    leader = process.leader
    if _may_flush(broker):
        yield f"flush {me}", 0
    if leader is not None:
        if records_left:
            acks = "" if leader.has_enough_in_sync_replicas else " acks=1"
            yield f"append {me} r{records_left}{acks}", 0
        if leader.pending_proposal is not None and state_epoch < MAX_PARTITION_EPOCH:
            yield f"propose {me}", 0
    elif _reaches_its_leader(cluster, broker):
        yield f"fetch {me}", 0
    record = cluster.controller.brokers[me]
    if record.broker_epoch == process.broker_epoch:
        if not record.is_live:
            yield f"activate {me}", 0
        has_heard = process.state == cluster.controller.known  # so its log stands still
        if has_heard and record.is_live and _is_requested(cluster, me):
            yield f"report {me}", 0


def _may_flush(broker: SmallBroker) -> bool:
    process = broker.process
    if process is None or not broker.settings.flushes_always:
        return False
    leader = process.leader
    known = broker.durable_end if leader is None else leader.durable_end_offset
    return known < broker.log.log_end_offset


def _is_requested(cluster: Cluster, broker_id: BrokerId) -> bool:
    controller = cluster.controller
    return controller.notes[broker_id].report is None and controller.wants_reports()


def _reaches_its_leader(cluster: Cluster, broker: SmallBroker) -> bool:
    """A fetch of it would be heard by somebody who leads in its epoch."""
    process = broker.process
    if process is None or process.follower is None or _may_flush(broker):
        return False
    if process.follower.next_fetch(broker.log, NOW_MS) is None:
        return False
    other = cluster.brokers[process.follower.leader].process
    return (
        other is not None
        and other.leader is not None
        and other.leader.leader_epoch == process.follower.leader_epoch
    )


def _of_the_wire(cluster: Cluster) -> Iterator[Move]:
    for message in cluster.in_flight:
        if isinstance(message, FetchInFlight):
            yield f"deliver fetch {message.follower} {message.leader}", 0
        elif isinstance(message, ResponseInFlight):
            yield f"deliver answer {message.follower} {message.leader}", 0
        else:
            yield f"deliver proposal {message.sender}", 0
    for position in range(len(cluster.store.late_writes)):
        yield f"deliver write {position}", 0


def _of_the_controller(cluster: Cluster) -> Iterator[Move]:
    if cluster.controller.hides:
        yield "settle", 0
    state = cluster.controller.known
    preferred = state.replicas[0]
    if state.has_leader and state.leader != preferred and preferred in state.in_sync_ids:
        yield "balance", 0
    for broker_id, record in cluster.controller.brokers.items():
        if record.is_live and cluster.brokers[broker_id].process is None:
            yield f"fence {broker_id}", 0


def _faults(cluster: Cluster) -> Iterator[str]:
    if cluster.store.late_writes:  # else a successor differs from the former one in nothing
        yield "controller"
    for broker in cluster.brokers:
        me, process = broker.broker_id, broker.process
        if process is None:
            continue
        yield f"kill {me}"
        if cluster.controller.brokers[me].is_live:
            yield f"fence {me}"
        leader = process.leader
        if leader is not None:
            for member in leader.in_sync_replicas:
                replica = leader.follower(member.broker_id)
                if replica is not None and replica.log_end_offset != leader.log_end_offset:
                    yield f"lag {me} {member.broker_id}"
            if leader.pending_proposal is not None:
                yield f"propose {me} late"
                yield f"propose {me} delayed"
        elif _reaches_its_leader(cluster, broker):
            yield f"fetch {me} request"
            yield f"fetch {me} answer"
    state = cluster.controller.known
    yield f"min-isr {1 if state.min_insync_replicas == 2 else 2}"
