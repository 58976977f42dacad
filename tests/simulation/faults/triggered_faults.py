"""Ambushes: faults that wait for the one moment a guard is there for, and profiles made of them.

Ordinary seeds do not draw these profiles: each is so much of one thing that it hides the others.
They are for mutants, and for hunting (`replay --profile`).
"""

from collections.abc import Callable
from typing import Any

from tidemark_operator.api.kinds import LEASE

from tests.simulation.engine.broker_process import BrokerSlot
from tests.simulation.engine.controller_process import ControllerSlot
from tests.simulation.engine.simulated_cluster import Cluster
from tests.simulation.engine.store import StoreFaults
from tests.simulation.faults.fault_plan import Arguments
from tests.simulation.faults.faults import (
    block_link,
    broker_of,
    fault,
    freeze,
    isolate,
    let_up,
    lose_power,
)

LOOK_EVERY_US = 200


def when(
    cluster: Cluster, is_so: Callable[[], bool], act: Callable[[], object], wait_us: int
) -> None:
    """As soon as it is so, if it is within that time and before all is healed."""
    ends_us = cluster.now_us + wait_us

    def look() -> None:
        if cluster.is_healed or cluster.now_us >= ends_us:
            return
        if is_so():
            act()
        else:
            cluster.timeline.after(LOOK_EVERY_US, look)

    look()


def leading(cluster: Cluster) -> list[tuple[int, BrokerSlot, Any]]:
    """(number of the broker, its slot, the leading replica), in order of partitions."""
    found = []
    for number, slot in enumerate(cluster.brokers.values()):
        if slot.partitions is not None:
            for replica in slot.partitions.replicas:
                if replica.leader is not None:
                    found.append((replica.topic, replica.partition, number, slot, replica))
    found.sort(key=lambda each: each[:3])
    return [each[2:] for each in found]


# ---- disks that lose what they took


@fault
def lose_pages(cluster: Cluster, number: int) -> None:
    """The process is killed, and the kernel's write-back of what it left fails; memory pressure
    takes the pages. The next sync hears of it (S8)."""
    slot = broker_of(cluster, number)
    if slot.process is not None:
        slot.process.kill()
        lost = slot.machine.volume.lose_pages(lambda path: path.endswith(".log"))
        cluster.coverage["logs that lost pages"] += lost
        cluster.note(slot.machine.name, f"{lost} logs lost pages")


@fault
def lose_write_back_and_pages(cluster: Cluster, number: int) -> None:
    """The next sync fails; when its process has ended, what it should have written is gone from
    memory too (S8)."""
    _lose_write_back_and_pages(cluster, broker_of(cluster, number))


@fault
def lose_write_back_unheard(cluster: Cluster, number: int, for_us: int) -> None:
    """The same, and no controller hears of it."""
    slot = broker_of(cluster, number)
    for controller in cluster.controllers:
        block_link(cluster, slot.machine.name, controller.machine.name, for_us)
    _lose_write_back_and_pages(cluster, slot)


def _lose_write_back_and_pages(cluster: Cluster, slot: BrokerSlot) -> None:
    volume = slot.machine.volume
    lost_before = volume.syncs_lost
    volume.lose_write_backs(1, of=lambda path: path.endswith(".log"))

    def drop() -> None:
        lost = volume.drop_lost_pages()
        cluster.coverage["files that lost pages"] += lost
        cluster.note(slot.machine.name, f"{lost} files lost what a failed sync had left in memory")

    when(
        cluster,
        lambda: volume.syncs_lost > lost_before and slot.process is None,
        drop,
        wait_us=60_000_000,
    )


# ---- brokers that cut what they had


@fault
def cut_off_leader(cluster: Cluster, which: int, for_us: int) -> None:
    """From all brokers and controllers: clients reach it, and it takes what nobody copies."""
    slots = [
        slot
        for slot in cluster.brokers.values()
        if slot.partitions is not None
        and any(replica.leader is not None for replica in slot.partitions.replicas)
    ]
    if slots:
        isolate(cluster, slots[which % len(slots)].machine.name, "both", for_us)


@fault
def strike_who_cut(cluster: Cluster, delay_us: int, wait_us: int) -> None:
    """A broker's power fails soon after it cut its log, and is back at once."""
    before = {
        number: _truncate_records(slot) for number, slot in enumerate(cluster.brokers.values())
    }
    found: list[int] = []

    def has_truncated() -> bool:
        for number, slot in enumerate(cluster.brokers.values()):
            cut = _truncate_records(slot)
            if cut > before[number]:
                found.append(number)
            before[number] = cut
        return bool(found)

    def strike() -> None:
        if not cluster.is_healed:
            cluster.coverage["struck after a cut"] += 1
            lose_power(cluster, found[0], 50_000)

    when(cluster, has_truncated, lambda: cluster.timeline.after(delay_us, strike), wait_us)


def _truncate_records(slot: BrokerSlot) -> int:
    if slot.partitions is None:
        return 0
    return sum(replica.snapshot(0).truncated_records for replica in slot.partitions.replicas)


# ---- controllers that stand still in the middle of a decision


@fault
def freeze_writing_controller(cluster: Cluster, for_us: int) -> None:
    """The leading one, as soon as it decides something: it thaws into its successor's term with a
    write in hand (I16)."""
    found: list[ControllerSlot] = []

    def is_deciding() -> bool:
        slot = cluster.leading_controller
        if slot is None or slot.service is None or slot.process is None:
            return False
        if any(pool.decisions.lock.locked() for pool in slot.service._pools.values()):
            found.append(slot)
        return bool(found)

    def strike() -> None:
        process = found[0].process
        if process is not None:
            cluster.note("fault", f"{process.name} freezes while it decides")
            cluster.coverage["controllers frozen while deciding"] += 1
            freeze(cluster, process, for_us)

    when(cluster, is_deciding, strike, wait_us=6_000_000)


@fault
def split_controllers(cluster: Cluster, apart_us: int) -> None:
    """The Lease is deleted by hand (S16) while the API server is slow: its holder goes on for a
    while beside whoever took the new one, and both have brokers to fence."""
    cluster.store.delete(LEASE, cluster.namespace, "tidemark-controller")
    cluster.store.faults = StoreFaults(most_delay_us=400_000)
    cluster.timeline.after(4_000_000, setattr, cluster.store, "faults", StoreFaults())
    first = cluster.random.randrange(len(cluster.brokers))

    def strike() -> None:
        cluster.coverage["two controllers decide"] += 1
        for index in (0, 1):
            number = (first + index) % len(cluster.brokers)
            cluster.timeline.after(index * apart_us, _kill_and_notify, cluster, number)

    when(
        cluster, lambda: sum(slot.is_leading for slot in cluster.controllers) > 1, strike, 3_000_000
    )


def _kill_and_notify(cluster: Cluster, number: int) -> None:
    slot = broker_of(cluster, number)
    if slot.process is not None and not cluster.is_healed:
        slot.process.kill()
        cluster.notify_of_trouble(slot)


# ---- a controller that hears nobody, while every broker lives


@fault
def deafen_controller(cluster: Cluster, for_us: int) -> None:
    """The leading one reaches the API server and no broker (S18)."""
    slot = cluster.leading_controller
    if slot is not None:
        for broker in cluster.brokers.values():
            block_link(cluster, broker.machine.name, slot.machine.name, for_us)
            block_link(cluster, slot.machine.name, broker.machine.name, for_us)


# ---- brokers that stay away


@fault
def keep_down(cluster: Cluster, number: int, down_us: int) -> None:
    """Killed, and not started again for a while."""
    slot = broker_of(cluster, number)
    slot.is_held_down = True
    if slot.process is not None:
        slot.process.kill()
    cluster.timeline.after(down_us, let_up, slot)


@fault
def last_one_leaves(cluster: Cluster, first: int, apart_us: int, down_us: int) -> None:
    """One broker after the other goes; the one that went last stays away, the others come back."""
    for index in range(len(cluster.brokers)):
        number = (first + index) % len(cluster.brokers)
        longer = 4 if index == len(cluster.brokers) - 1 else 1
        cluster.timeline.after(
            index * apart_us, _keep_down_unless_healed, cluster, number, down_us * longer
        )


def _keep_down_unless_healed(cluster: Cluster, number: int, down_us: int) -> None:
    if not cluster.is_healed:
        keep_down(cluster, number, down_us)


TRIGGERED_FAULTS: dict[str, Arguments] = {
    "lose_pages": lambda d: (d.broker,),
    "lose_write_back_and_pages": lambda d: (d.broker,),
    "lose_write_back_unheard": lambda d: (d.broker, d.us(9_000, 12_000)),
    "cut_off_leader": lambda d: (d.chance.randrange(4), d.us(3_500, 5_000)),
    "strike_who_cut": lambda d: (d.us(150, 1_500), 8_000_000),
    "freeze_writing_controller": lambda d: (d.us(5_000, 9_000),),
    "split_controllers": lambda d: (d.us(100, 900),),
    "deafen_controller": lambda d: (d.us(4_000, 7_000),),
    "keep_down": lambda d: (d.broker, d.us(500, 4_000)),
    "last_one_leaves": lambda d: (d.broker, d.us(300, 2_500), d.us(1_000, 2_500)),
}

# As PROFILES of fault_profiles.py: kinds, and how often at most.
AMBUSHED: dict[str, dict[str, int]] = {
    "pages go": {"lose_pages": 6},
    "syncs lie": {"lose_write_back_and_pages": 3, "kill_leader": 1},
    "syncs lie unheard": {"lose_write_back_unheard": 1},
    "writers freeze": {"freeze_writing_controller": 2, "kill_leader": 4, "slow_store": 3},
    "the last one leaves": {"last_one_leaves": 2},
    "producers give up": {"freeze_leader": 5, "mute_leader": 3, "slow_followers": 4},
    "replicas move": {"move_partition": 6, "grow_topic": 2, "kill_leader": 3, "keep_down": 2},
    "topics rest": {
        "retain_topic": 3,
        "move_partition": 3,
        "kill_leader": 2,
        "kill_controller": 2,
    },
    "volumes change": {"lose_volume": 2, "snapshot_volume": 4, "restore_volume": 3},
    "disks change": {
        "lose_volume": 2,
        "snapshot_volume": 4,
        "restore_volume": 3,
        "lose_all_power": 2,
        "short_power_loss": 4,
    },
    "files go": {"lose_replica": 3, "kill_leader": 1},
    "slices go": {"lose_slice": 4, "kill_controller": 5},
    "leases go": {"delete_lease": 6, "kill_controller": 1, "kill_leader": 5, "slow_store": 2},
    "controllers part": {"split_controllers": 4},
    "controllers die": {"kill_controller": 3, "freeze_controller": 2},
    "controllers go deaf": {"deafen_controller": 1},
    "tails are cut": {"cut_off_leader": 3, "strike_who_cut": 3},
    "slices change": {"back_up_slices": 3, "restore_slices": 2, "lose_slice": 2, "kill_leader": 3},
    "bits flip": {"flip_bit": 8, "kill_leader": 2},
    "brokers stop": {"stop_broker": 6, "roll_brokers": 2, "slow_followers": 4},
    "slow syncs": {"slow_disk": 6, "slow_followers": 4, "freeze_leader": 3, "short_power_loss": 5},
}
# The fault profiles whose topics are to be flush: Always.
FLUSHES_ALWAYS = ("slow syncs", "tails are cut", "disks change")
# The fault profiles whose faults begin early, as what follows from them takes its time.
BEGINS_EARLY = (
    "syncs lie unheard",
    "one controller stays deaf",
    "two die with their controller",
    "disks hang",
    "people choose",
    "the last one hesitates",
    "deleted slices come back",
    "moves are taken back",
    "newcomers are left alone",
    "moves lose their leader",
    "controllers part and give ids",
    "controllers part and register",
)
# The profiles in which whoever was fenced stays eligible, so that what its start proves counts.
NEEDS_ALL_IN_SYNC = ("syncs lie unheard",)
# Of Shape, for these and others.
ALL_IN_SYNC: dict[str, Any] = {"min_insync": 3, "commit_rule": "MinInsync", "flush": "Os"}
# The fault profiles in which idempotent producers soon ask for the next epoch.
GIVES_UP_SOON = ("producers give up",)
# The fault profiles in which there are more brokers than replicas; two of them share a rack.
# A fourth broker is where replicas can move to.
RACKS_OF: dict[str, tuple[str, ...]] = {
    "replicas move": ("a", "a", "b", "c"),
    "topics rest": ("a", "a", "b", "c"),
}
SECONDS_OF: dict[str, float] = {
    "writers freeze": 14.0,
    "syncs lie unheard": 18.0,
    "one controller stays deaf": 15.0,
    "two die with their controller": 12.0,
    "disks hang": 12.0,
    "people choose": 18.0,
    "controllers part and give ids": 14.0,
}
