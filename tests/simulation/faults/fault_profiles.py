"""Inject faults into the present leader or a joining replica, and combine them to fault profiles.

Faults at random times rarely hit the few milliseconds between a proposal and its response. These
faults wait for that time. A profile has few kinds of faults at high rates; a quarter of all seeds
use a profile.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from tests.simulation.engine.broker_process import BrokerSlot
from tests.simulation.engine.simulated_cluster import Cluster
from tests.simulation.engine.store import StoreFaults
from tests.simulation.faults.bulk import BULK_FAULTS, BULK_PROFILES, BULK_SECONDS
from tests.simulation.faults.client_triggers import CLIENT_PROFILES, CLIENT_TRIGGERED_FAULTS
from tests.simulation.faults.controller_triggers import (
    CONTROLLER_PROFILES,
    CONTROLLER_TRIGGERED_FAULTS,
)
from tests.simulation.faults.disk_triggers import DISK_PROFILES, DISK_TRIGGERED_FAULTS
from tests.simulation.faults.fault_plan import (
    KINDS,
    OPERATOR_ERRORS,
    Arguments,
    Draw,
    PlanShape,
    draw_plan,
)
from tests.simulation.faults.faults import (
    Fault,
    block_link,
    broker_of,
    fault,
    freeze,
    lose_power,
    slow_link,
)
from tests.simulation.faults.identity_faults import (
    IDENTITY_FAULTS,
    IDENTITY_PROFILES,
    IDENTITY_SECONDS,
)
from tests.simulation.faults.move_triggers import MOVE_PROFILES, MOVE_TRIGGERED_FAULTS
from tests.simulation.faults.optional_faults import ADDED, OPTIONAL_FAULTS
from tests.simulation.faults.triggered_faults import AMBUSHED, SECONDS_OF, TRIGGERED_FAULTS, leading

LOOK_EVERY_US = 500
UNDER_WAY_US = 1_000  # a proposal has reached its controller, its answer is not back
SHARE_OF_SEEDS = 0.25


def _leader(cluster: Cluster, which: int) -> BrokerSlot | None:
    found = leading(cluster)
    return found[which % len(found)][1] if found else None


@fault
def kill_leader(cluster: Cluster, which: int) -> None:
    slot = _leader(cluster, which)
    if slot is not None and slot.process is not None:
        slot.process.kill()


@fault
def freeze_leader(cluster: Cluster, which: int, for_us: int) -> None:
    slot = _leader(cluster, which)
    if slot is not None and slot.process is not None:
        freeze(cluster, slot.process, for_us)


@fault
def deafen_leader(cluster: Cluster, which: int, for_us: int) -> None:
    """What controllers say does not reach it; followers do, and what it says goes out."""
    slot = _leader(cluster, which)
    if slot is not None:
        for controller in cluster.controllers:
            block_link(cluster, controller.machine.name, slot.machine.name, for_us)


@fault
def mute_leader(cluster: Cluster, which: int, for_us: int) -> None:
    """What it says to controllers waits in its kernel; it hears, and followers reach it."""
    slot = _leader(cluster, which)
    if slot is not None:
        for controller in cluster.controllers:
            block_link(cluster, slot.machine.name, controller.machine.name, for_us)


@fault
def slow_followers(cluster: Cluster, which: int, most_us: int, for_us: int) -> None:
    """What a leader sends to one follower after the other takes its time: ends differ."""
    slot = _leader(cluster, which)
    if slot is not None:
        for other in cluster.brokers.values():
            if other is not slot:
                slow_us = cluster.random.randint(1_000, most_us)
                slow_link(cluster, slot.machine.name, other.machine.name, slow_us, for_us)


@fault
def freeze_leading_controller(cluster: Cluster, for_us: int) -> None:
    """Its successor leads when it thaws, with all that was sent to it meanwhile."""
    slot = cluster.leading_controller
    if slot is not None and slot.process is not None:
        freeze(cluster, slot.process, for_us)


@fault
def strike_joiner(cluster: Cluster, blow: str, wait_us: int) -> None:
    """When a leader next proposes that somebody joins. `power`: the joiner's power fails for a
    moment while the proposal is under way; `freeze`: the joiner stands still; `leader`: the leader
    dies; `deaf`: the leader hears no answer."""
    ends_us = cluster.now_us + wait_us

    def look() -> None:
        if cluster.is_healed or cluster.now_us >= ends_us:
            return
        for number, slot, replica in leading(cluster):
            joiner = _joiner_of(replica)
            if joiner is not None:
                cluster.note(
                    "fault", f"{blow} as {joiner} joins {replica.topic}-{replica.partition}"
                )
                cluster.coverage[f"struck: {blow}"] += 1
                BLOWS[blow](cluster, number, slot, joiner)
                return
        cluster.timeline.after(LOOK_EVERY_US, look)

    look()


def _joiner_of(replica: Any) -> int | None:
    leader = replica.leader
    proposal = leader.pending_proposal
    if proposal is None or len(leader.in_sync_replicas) < leader.state.min_insync_replicas:
        return None  # where nothing is committed meanwhile nothing can go wrong
    present = {member.broker_id for member in leader.in_sync_replicas}
    joining = [m.broker_id for m in proposal.new_in_sync_replicas if m.broker_id not in present]
    return joining[0] if joining else None


def _power(cluster: Cluster, number: int, slot: BrokerSlot, joiner: int) -> None:
    for controller in cluster.controllers:
        slow_link(cluster, slot.machine.name, controller.machine.name, 800_000, 1_500_000)
    _hold_up(cluster, slot, joiner)
    lose_power(cluster, joiner, cluster.random.randint(5_000, 100_000))


def _hold_up(cluster: Cluster, slot: BrokerSlot, joiner: int) -> None:
    """It gets records late."""
    slow_link(
        cluster, slot.machine.name, broker_of(cluster, joiner).machine.name, 500_000, 2_000_000
    )


def _freeze(cluster: Cluster, number: int, slot: BrokerSlot, joiner: int) -> None:
    process = broker_of(cluster, joiner).process
    if process is not None:
        freeze(cluster, process, cluster.random.randint(100_000, 3_000_000))


def _kill_leader(cluster: Cluster, number: int, slot: BrokerSlot, joiner: int) -> None:
    if slot.process is not None:
        cluster.timeline.after(cluster.random.randint(0, 30_000), slot.process.kill)


def _deafen(cluster: Cluster, number: int, slot: BrokerSlot, joiner: int) -> None:
    _hold_up(cluster, slot, joiner)
    for controller in cluster.controllers:
        link = (controller.machine.name, slot.machine.name)
        cluster.timeline.after(UNDER_WAY_US, block_link, cluster, *link, 1_200_000)


BLOWS: dict[str, Callable[[Cluster, int, BrokerSlot, int], None]] = {
    "power": _power,
    "freeze": _freeze,
    "leader": _kill_leader,
    "deaf": _deafen,
}

AIMED: dict[str, Arguments] = {
    "kill_leader": lambda d: (d.chance.randrange(4),),
    "freeze_leader": lambda d: (d.chance.randrange(4), d.us(300, 4_000)),
    "deafen_leader": lambda d: (d.chance.randrange(4), d.us(200, 4_000)),
    "mute_leader": lambda d: (d.chance.randrange(4), d.us(200, 4_000)),
    "slow_followers": lambda d: (d.chance.randrange(4), d.us(20, 400), d.us(500, 4_000)),
    "freeze_leading_controller": lambda d: (d.us(4_000, 9_000),),
    "strike_joiner": lambda d: (d.chance.choice(tuple(BLOWS)), d.us(1_000, 6_000)),
    "short_power_loss": lambda d: (d.broker, d.us(5, 300)),
    "slow_store": lambda d: (d.us(50, 800), d.us(1_000, 6_000)),
}


@fault
def slow_store(cluster: Cluster, most_us: int, for_us: int) -> None:
    """The API server takes its time, and loses nothing."""
    usual = cluster.store.faults
    cluster.store.faults = StoreFaults(least_delay_us=usual.least_delay_us, most_delay_us=most_us)
    cluster.timeline.after(for_us, setattr, cluster.store, "faults", StoreFaults())


@fault
def short_power_loss(cluster: Cluster, number: int, off_us: int) -> None:
    """A machine that is back before anybody missed it."""
    lose_power(cluster, number, off_us)


# Kinds, and how often at most; each comes at least once.
PROFILES: dict[str, dict[str, int]] = {
    "leaders die": {"kill_leader": 6, "slow_followers": 6, "freeze_leader": 3, "deafen_leader": 2},
    "joiners die": {
        "strike_joiner": 8,
        "kill_broker": 4,
        "short_power_loss": 5,
        "freeze_broker": 3,
    },
    "late words": {"deafen_leader": 4, "mute_leader": 4, "bad_messages": 3, "freeze_broker": 4},
    "two controllers": {"freeze_leading_controller": 2, "kill_leader": 5, "freeze_broker": 3},
    "bad store": {"bad_store": 3, "kill_leader": 4, "freeze_broker": 3},
    "bad disks": {"full_disk": 4, "fail_disk": 3, "lose_write_back": 3, "kill_broker_in_call": 4},
    "powers fail": {"lose_all_power": 1, "lose_power": 4, "short_power_loss": 4},
    "forced deletions": {"delete_pod_by_force": 5, "freeze_broker": 2},
    "settings": {"configure_topic": 8, "kill_leader": 4, "freeze_leader": 2},
    "topics churn": {"recreate_topic": 3, "kill_broker": 4, "short_power_loss": 3},
}

# Also those that ordinary seeds do not draw.
ALL_PROFILES: dict[str, dict[str, int]] = {
    **PROFILES,
    **AMBUSHED,
    **CONTROLLER_PROFILES,
    **MOVE_PROFILES,
    **DISK_PROFILES,
    **CLIENT_PROFILES,
    **BULK_PROFILES,
    **OPTIONAL_FAULTS,
    **IDENTITY_PROFILES,
}
ALL_KINDS: dict[str, Arguments] = {
    **KINDS,
    **OPERATOR_ERRORS,
    **AIMED,
    **TRIGGERED_FAULTS,
    **CONTROLLER_TRIGGERED_FAULTS,
    **MOVE_TRIGGERED_FAULTS,
    **DISK_TRIGGERED_FAULTS,
    **CLIENT_TRIGGERED_FAULTS,
    **BULK_FAULTS,
    **ADDED,
    **IDENTITY_FAULTS,
}


def profile_of(seed: int) -> str:
    """ "" for most."""
    chance = Random(f"weather of {seed}")
    return chance.choice(tuple(PROFILES)) if chance.random() < SHARE_OF_SEEDS else ""


def plan_of(
    seed: int, shape: PlanShape, profile: str = "", additions: tuple[str, ...] = ()
) -> tuple[Fault, ...]:
    """In order of time: of that fault profile alone, or what the seed brings."""
    if profile:
        return tuple(_targeted_fault(seed, shape, profile))
    found = list(draw_plan(seed, shape))
    drawn = profile_of(seed)
    for name in ((drawn,) if drawn else ()) + additions:
        found += _targeted_fault(seed, shape, name)
    return tuple(sorted(found, key=lambda each: each.at_us))


def _targeted_fault(seed: int, shape: PlanShape, profile: str) -> list[Fault]:
    chance = Random(f"{profile} in {seed}")
    draw = Draw(chance, shape)
    found = []
    for kind, most in ALL_PROFILES[profile].items():
        arguments = ALL_KINDS[kind]
        for _ in range(chance.randint(1, most)):
            found.append(
                Fault(chance.randint(shape.first_us, shape.last_us), kind, arguments(draw))
            )
    return sorted(found, key=lambda each: each.at_us)


def seconds_of(profile: str) -> float:
    """Of faults, for mutants: short, but a Lease has to run out where controllers freeze."""
    seconds = {**SECONDS_OF, **BULK_SECONDS, **IDENTITY_SECONDS}
    return seconds.get(profile, 14.0 if profile == "two controllers" else 8.0)
