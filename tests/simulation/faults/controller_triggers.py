"""Ambushes of what controllers judge by, and of what people ask of them: silence that is none,
probes that are refused, disks that hang, choices, backups; and fault profiles made of them.

Each makes the moment that a guard of the controller is there for. For mutants and hunting, as those
of `triggered_faults.py`.
"""

from typing import Any

from tidemark_operator.api.broker import BrokerControlState
from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.api.kinds import LEASE, PARTITION_SLICE

from tests.simulation.clients.desired_topics import DesiredTopic, states_of
from tests.simulation.engine.broker_process import BrokerSlot
from tests.simulation.engine.processes import SimulatedProcess
from tests.simulation.engine.simulated_cluster import Cluster
from tests.simulation.faults.fault_plan import Arguments
from tests.simulation.faults.faults import (
    block_link,
    broker_of,
    fault,
    freeze,
    let_up,
    lose_power,
    slow_link,
)
from tests.simulation.faults.triggered_faults import (
    ALL_IN_SYNC,
    deafen_controller,
    keep_down,
    last_one_leaves,
    leading,
    when,
)

HEARD_AGAIN_US = 100_000
NEWS_US = 300_000
WAIT_US = 10_000_000
UNTIL_HEALED_US = 60_000_000
SHORT_US = 200_000
APART_US = 2_000_000
SLOW_US, SLOW_FOR_US = 80_000, 1_000_000


# ---- sessions


@fault
def deafen_controller_for_long(cluster: Cluster, for_us: int, late_us: int) -> None:
    """For more than two sessions; the others come late to the Lease that it gives away (S18)."""
    slot = cluster.leading_controller
    if slot is None:
        return
    deafen_controller(cluster, for_us)

    def hold_up_others() -> None:
        for other in cluster.controllers:
            if other is not slot and other.process is not None:
                freeze(cluster, other.process, late_us)

    when(cluster, lambda: not slot.is_leading, hold_up_others, for_us)


@fault
def reject_probes(cluster: Cluster, number: int, for_us: int) -> None:
    """A network policy rejects what controllers send to a broker, and word comes that its container
    ended, which is wrong. Its own polls go through (S19)."""
    slot = broker_of(cluster, number)
    for controller in cluster.controllers:
        cluster.network.reject(controller.machine.name, slot.machine.name)
        link = (controller.machine.name, slot.machine.name)
        cluster.timeline.after(for_us, cluster.network.rejected.pop, link, None)
    cluster.timeline.after(NEWS_US, cluster.notify_of_trouble, slot)


@fault
def stall_after_silence(cluster: Cluster, number: int, silent_us: int, stall_us: int) -> None:
    """A broker is not heard for a part of its session, and then the controller stands still for
    another part of it: together longer than the session."""
    slot, leading = broker_of(cluster, number), cluster.leading_controller
    if leading is None or leading.process is None:
        return
    for controller in cluster.controllers:
        for_us = silent_us + stall_us + HEARD_AGAIN_US
        block_link(cluster, slot.machine.name, controller.machine.name, for_us)
    cluster.timeline.after(silent_us, _stall, cluster, leading.process, stall_us)


@fault
def lose_two_and_controller(cluster: Cluster, which: int, off_us: int) -> None:
    """The power of a leader, of a follower and of the controller's process fail in one event: the
    sessions that its successor grants to both run out together."""
    found = leading(cluster)
    controller = cluster.leading_controller
    if not found or controller is None or controller.process is None:
        return
    number, slot, replica = found[which % len(found)]
    ids = list(cluster.brokers)
    followers = [b for b in replica.leader.state.in_sync_ids if b != slot.broker_id]
    controller.process.kill()
    lose_power(cluster, number, off_us)
    lose_power(cluster, ids.index(max(followers)), off_us)


def _stall(cluster: Cluster, process: SimulatedProcess, for_us: int) -> None:
    if not cluster.is_healed:
        freeze(cluster, process, for_us)


# ---- stalls that are a broker's own, and disks that hang


@fault
def stall_broker(cluster: Cluster, number: int, for_us: int) -> None:
    """For less than a session, and longer than followers may lag; what it says then takes longer to
    them than it waits for their fetches (S21)."""
    slot = broker_of(cluster, number)
    if slot.process is None:
        return
    cluster.stalled[slot.broker_id] = None
    freeze(cluster, slot.process, for_us)
    for other in cluster.brokers.values():
        if other is not slot:
            source, destination = slot.machine.name, other.machine.name
            slow_link(cluster, source, destination, SLOW_US, for_us + SLOW_FOR_US)


@fault
def hang_disks(cluster: Cluster, first: int, apart_us: int, for_us: int) -> None:
    """One after the other. Only workers hang: brokers poll on, and say that they cannot write."""
    for index in range(len(cluster.brokers)):
        slot = broker_of(cluster, (first + index) % len(cluster.brokers))
        cluster.timeline.after(index * apart_us, _hang, cluster, slot, for_us)


def _hang(cluster: Cluster, slot: BrokerSlot, for_us: int) -> None:
    if not cluster.is_healed:
        slot.machine.volume.hangs_until_us = cluster.now_us + for_us


# ---- last resorts


@fault
def choose_leader(cluster: Cluster, first: int, apart_us: int, down_us: int) -> None:
    """One broker after the other leaves. The last one stays away, and a human annotates the Topic:
    who is back shall lead, whatever is lost. When all are in sync again the same happens once more,
    and the annotation is still there (B4)."""
    last_one_leaves(cluster, first, apart_us, down_us)

    def leave_again() -> None:
        cluster.coverage["chosen, and all in sync again"] += 1
        last_one_leaves(cluster, first, apart_us, down_us)

    def chosen() -> None:
        when(cluster, lambda: _are_all_in_sync(cluster), leave_again, WAIT_US)

    when(
        cluster,
        lambda: any(_choose(cluster, desired_topic) for desired_topic in cluster.topics),
        chosen,
        WAIT_US,
    )


def _choose(cluster: Cluster, desired_topic: DesiredTopic) -> bool:
    for state in states_of(cluster, desired_topic):
        running = [b for b in state.replicas if cluster.brokers[b].process is not None]
        if running and not state.has_leader:
            choice = LeaderChoice(
                state.partition, cluster.random.choice(running), state.leader_epoch
            )
            desired_topic.choices[state.partition] = choice
            cluster.note("fault", f"a human chooses: {choice}")
            return True
    return False


def _are_all_in_sync(cluster: Cluster) -> bool:
    states = [
        state for desired_topic in cluster.topics for state in states_of(cluster, desired_topic)
    ]
    return bool(states) and all(len(s.in_sync_replicas) == len(s.replicas) for s in states)


@fault
def last_one_hesitates(cluster: Cluster, number: int, away_us: int, still_us: int) -> None:
    """The power of all others fails for a moment as one is killed: it alone can prove what it has.
    It comes back after them, and stands still between its registration and its next word (S14)."""
    slot = broker_of(cluster, number)
    for other in range(len(cluster.brokers)):
        if other != number:
            lose_power(cluster, other, SHORT_US)
    keep_down(cluster, number, away_us)

    def hesitate() -> None:
        if slot.process is not None:
            cluster.coverage["stood still after a registration"] += 1
            freeze(cluster, slot.process, still_us)

    when(cluster, lambda: _is_starting(cluster, slot), hesitate, WAIT_US)


def _is_starting(cluster: Cluster, slot: BrokerSlot) -> bool:
    """Registered, and nothing more."""
    leading, broker = cluster.leading_controller, slot.broker
    if leading is None or leading.service is None or broker is None:
        return False
    pool = leading.service._pools.get(cluster.pool)
    record = None if pool is None else pool.decisions.state.brokers.get(slot.broker_id)
    is_this_epoch = record is not None and record.incarnation == broker.incarnation
    return is_this_epoch and record is not None and record.state is BrokerControlState.STARTING


# ---- objects


@fault
def put_back_deleted(cluster: Cluster, number: int) -> None:
    """A topic is deleted while a broker is away. Then somebody puts its slice back, and another
    controller takes over (S12)."""
    name = f"archive-{len(cluster.topics)}"
    desired_topic = cluster.create_topic(name, partitions=1, replication_factor=3)
    saved: list[dict[str, Any]] = []

    def delete() -> None:
        slices = cluster.store.objects(PARTITION_SLICE)
        saved.extend(item for item in slices if item.get("topicId") == desired_topic.topic_id)
        keep_down(cluster, number, UNTIL_HEALED_US)
        desired_topic.is_deleted = True
        when(cluster, is_deleted, put_back, WAIT_US)

    def is_deleted() -> bool:
        return desired_topic.is_gone and not any(
            cluster.store.get(PARTITION_SLICE, cluster.namespace, item["metadata"]["name"])
            for item in saved
        )

    def put_back() -> None:
        for item in saved:
            created = cluster.store.create(PARTITION_SLICE, item)
            cluster.left_alone[created["metadata"]["name"]] = created["metadata"]["uid"]
        leading = cluster.leading_controller
        if leading is not None and leading.process is not None:
            leading.process.kill()

    when(cluster, lambda: desired_topic.had_slices, delete, WAIT_US)


# ---- two controllers


@fault
def register_apart(cluster: Cluster, number: int) -> None:
    """The Lease is deleted by hand while a broker is away, and for a moment two controllers lead.
    The broker's next life registers with the deposed one, the only one that brokers reach, and
    comes in sync. Both are killed then: the life after that asks the one that stays, which knows of
    the first life only (0083)."""
    slot, superseded = broker_of(cluster, number), cluster.leading_controller
    if superseded is None or slot.process is None or slot.is_held_down:
        return
    slot.is_held_down = True
    slot.process.kill()
    cluster.store.delete(LEASE, cluster.namespace, "tidemark-controller")
    others = [other for other in cluster.controllers if other is not superseded]
    for other in others:
        for broker in cluster.brokers.values():
            block_link(cluster, broker.machine.name, other.machine.name, APART_US)

    def kill_both() -> None:
        cluster.coverage["registered while two controllers lead"] += 1
        for process in (superseded.process, slot.process):
            if process is not None:
                process.kill()

    def register() -> None:
        let_up(slot)
        when(cluster, lambda: is_in_sync(slot), kill_both, APART_US)

    when(cluster, lambda: any(other.is_leading for other in others), register, APART_US)
    cluster.timeline.after(APART_US, let_up, slot)


def is_in_sync(slot: BrokerSlot) -> bool:
    """As it was told itself, of some partition."""
    replicas = () if slot.partitions is None else slot.partitions.replicas
    return any(
        replica.state is not None and slot.broker_id in replica.state.in_sync_ids
        for replica in replicas
    )


CONTROLLER_TRIGGERED_FAULTS: dict[str, Arguments] = {
    "deafen_controller_for_long": lambda d: (d.us(8_500, 11_000), d.us(700, 1_500)),
    "reject_probes": lambda d: (d.broker, d.us(1_000, 4_000)),
    "stall_after_silence": lambda d: (d.broker, d.us(1_600, 1_800), d.us(900, 1_000)),
    "lose_two_and_controller": lambda d: (d.chance.randrange(2), d.us(8_000, 9_000)),
    "stall_broker": lambda d: (d.broker, d.us(1_700, 2_300)),
    "hang_disks": lambda d: (d.broker, d.us(800, 1_600), d.us(4_000, 6_000)),
    "choose_leader": lambda d: (d.broker, d.us(300, 600), d.us(1_000, 1_300)),
    "last_one_hesitates": lambda d: (d.broker, d.us(2_500, 3_500), d.us(800, 1_600)),
    "put_back_deleted": lambda d: (d.broker,),
    "register_apart": lambda d: (d.broker,),
}

CONTROLLER_PROFILES: dict[str, dict[str, int]] = {
    "one controller stays deaf": {"deafen_controller_for_long": 1},
    "probes are refused": {"reject_probes": 3},
    "silences add up": {"stall_after_silence": 1},
    "two die with their controller": {"lose_two_and_controller": 1},
    "brokers stall": {"stall_broker": 2},
    "disks hang": {"hang_disks": 1},
    "people choose": {"choose_leader": 1},
    "the last one hesitates": {"last_one_hesitates": 1},
    "deleted slices come back": {"put_back_deleted": 1},
    "controllers part and register": {"register_apart": 2},
}

# Of Shape, beside what the seed drew.
CONTROLLER_SHAPES: dict[str, dict[str, Any]] = {
    # Two are not more than a half.
    "two die with their controller": {"racks": ("a", "b", "c", "d")},
    "brokers stall": {"replica_lag_max_ms": 1500},
    "disks hang": {"replica_lag_max_ms": 5000},
    # Whoever is in sync last alone has what is committed.
    "people choose": {"min_insync": 1},
    # Whoever was fenced stays eligible, so that what its start proves counts.
    "the last one hesitates": ALL_IN_SYNC,
    "controllers part and register": ALL_IN_SYNC,
}
