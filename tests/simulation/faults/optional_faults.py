"""What a share of the ordinary seeds has beside its faults: a wider world, and faults that need it.

`OPTIONAL_FAULTS` are kinds and how often at most, as the profiles of fault_profiles.py, and can be
asked for like these. They are no kinds of every seed's swarm: that would change what each seed
brings.
"""

from collections.abc import Callable

from tidemark_operator.controller.core.reassignment import is_moving

from tests.simulation.clients.desired_topics import DesiredTopic, states_of
from tests.simulation.engine.broker_process import BrokerSlot
from tests.simulation.engine.simulated_cluster import Cluster
from tests.simulation.engine.store import REQUESTS, RESPONSES
from tests.simulation.faults.fault_plan import Arguments, Draw
from tests.simulation.faults.faults import (
    Argument,
    block_link,
    broker_of,
    configure_topic,
    fault,
    freeze,
    isolate,
    let_up,
    lose_controller_power,
    lose_power,
    part_from_store,
)
from tests.simulation.faults.triggered_faults import keep_down, leading

LOOK_EVERY_US = 50_000
ALONE_FOR_US = 400_000  # so long a stranded leader commits what the others never get
SPARE_BROKERS = "brokers to spare"
UNCLEAN_ELECTIONS = "unclean elections"
UNCLEAN_LATER = "unclean elections now and then"
SMALL_SEGMENTS = "small segments"
FLIPS_AT_REST = "bits flip at rest"
COMPACTED = "keys are compacted"
COMPACTED_FLIPS = "bits flip where keys are compacted"  # a fault profile, of no ordinary seed
OLD_RECORDS = "records grow old"
RESTING = "producers rest"
CONTROLLERS_CUT_OFF = "controllers are cut off"
# Of a broker's files, beside its segments. Not those that say whose it is: `meta.properties`, which
# only a human mends, and `partition.metadata`: of a topic that never was judges know nothing.
FILES = {
    "indexes": (".index", ".timeindex", ".synced"),
    "producers": (".snapshot", ".producers"),
    "offsets": ("-offset-checkpoint",),
    "epochs": ("leader-epoch-checkpoint",),
    "proofs": ("tidemark-boot-stamp.json", ".kafka_cleanshutdown"),
}


@fault
def cancel_moves(cluster: Cluster, topic: str, wait_us: int) -> None:
    """As soon as one is under way the user asks for the brokers that each partition had."""
    ends_us = cluster.now_us + wait_us

    def look() -> None:
        if cluster.is_healed or cluster.now_us >= ends_us:
            return
        for desired_topic in cluster.topics:
            if (
                desired_topic.topic == topic
                and desired_topic.is_wanted
                and _is_moving(cluster, desired_topic)
            ):
                desired_topic.is_cancelling = True
                return
        cluster.timeline.after(LOOK_EVERY_US, look)

    look()


def _is_moving(cluster: Cluster, desired_topic: DesiredTopic) -> bool:
    return any(is_moving(state) for state in states_of(cluster, desired_topic))


@fault
def lose_node(cluster: Cluster, which: int, off_us: int) -> None:
    """A leader and the leading controller are pods of one node, and it falls silent."""
    found, controller = leading(cluster), cluster.leading_controller
    if not found or controller is None:
        return
    lose_power(cluster, found[which % len(found)][0], off_us)
    lose_controller_power(cluster, cluster.controllers.index(controller), off_us)


@fault
def part_leading_from_store(cluster: Cluster, loses: str, for_us: int) -> None:
    """Whoever leads then; brokers go on asking it."""
    controller = cluster.leading_controller
    if controller is not None:
        part_from_store(cluster, cluster.controllers.index(controller), loses, for_us)


@fault
def slow_moves(cluster: Cluster, bytes_per_second: int, for_us: int) -> None:
    """moveBytesPerSecond of the pool: a move takes long enough for something to happen in it."""
    cluster.move_bytes_per_second = bytes_per_second
    cluster.timeline.after(for_us, setattr, cluster, "move_bytes_per_second", 0)


@fault
def allow_unclean(cluster: Cluster, topic: str, value: str) -> None:
    configure_topic(cluster, topic, "unclean.leader.election.enable", value)


@fault
def strand_leader(cluster: Cluster, which: int, blow: str, wait_us: int, for_us: int) -> None:
    """A leader loses its followers, but for those that min ISR asks for, commits without the others
    and then goes away with those that stayed. `freeze`, `isolate`: it comes back with all it had;
    `down`: its process ends."""
    found = leading(cluster)
    if not found:
        return
    _, slot, replica = found[which % len(found)]
    others = [other for other in cluster.brokers.values() if other is not slot]
    cluster.random.shuffle(others)
    stays = replica.leader.state.min_insync_replicas
    staying, left = [slot, *others[: stays - 1]], others[stays - 1 :]
    for one in staying:
        for other in left:
            block_link(cluster, one.machine.name, other.machine.name, wait_us)
    ids = {one.broker_id for one in staying}
    ends_us = cluster.now_us + wait_us

    def look() -> None:
        leader = replica.leader
        if cluster.is_healed or cluster.now_us >= ends_us or leader is None:
            return
        if leader.state.in_sync_ids <= ids:
            cluster.timeline.after(ALONE_FOR_US, strike)
        else:
            cluster.timeline.after(LOOK_EVERY_US, look)

    def strike() -> None:
        if not cluster.is_healed:
            cluster.coverage[f"stranded: {blow}"] += 1
            for one in staying:
                BLOWS[blow](cluster, one, for_us)

    look()


def _freeze(cluster: Cluster, slot: BrokerSlot, for_us: int) -> None:
    if slot.process is not None:
        freeze(cluster, slot.process, for_us)


def _isolate(cluster: Cluster, slot: BrokerSlot, for_us: int) -> None:
    isolate(cluster, slot.machine.name, "both", for_us)


def _keep_down(cluster: Cluster, slot: BrokerSlot, for_us: int) -> None:
    keep_down(cluster, slot.broker_id, for_us)


BLOWS: dict[str, Callable[[Cluster, BrokerSlot, int], None]] = {
    "freeze": _freeze,
    "isolate": _isolate,
    "down": _keep_down,
}


@fault
def flip_bit_at_rest(cluster: Cluster, number: int, kind: str, end: str) -> None:
    """In a file that the next start reads: between two lives of the broker, of which the first was
    killed, or stopped in order."""
    slot = broker_of(cluster, number)
    if slot.process is None or slot.is_held_down:
        return
    slot.is_held_down = True
    if end == "stop":
        slot.process.terminate()
    else:
        slot.process.kill()

    def flip() -> None:
        if cluster.is_healed:
            return
        if slot.process is not None:
            cluster.timeline.after(LOOK_EVERY_US, flip)
            return
        found = slot.machine.volume.flip_bit(lambda path: path.endswith(FILES[kind]))
        cluster.coverage[f"flipped at rest: {kind if found else 'nothing'}"] += 1
        cluster.note(slot.machine.name, f"bit flipped after a {end}: {found or 'nowhere'}")
        let_up(slot)

    flip()


@fault
def strike_compaction(cluster: Cluster, number: int, suffix: str, blow: str, calls: int) -> None:
    """The broker's next pass that comes so far: in the middle of the so-manieth call to its disk
    from then on, that of the new file's name excepted. `kill`: the process; `power`: the machine's
    fails for a moment."""
    slot = broker_of(cluster, number)

    def strike() -> None:
        if not cluster.is_healed:
            cluster.coverage[f"struck in a compaction: {blow}"] += 1
            if blow == "power":
                lose_power(cluster, number, cluster.random.randint(5_000, 300_000))
            elif slot.process is not None:
                slot.process.kill()

    slot.machine.volume.crash_at(suffix, calls, strike)


def _strike_compaction(draw: Draw) -> tuple[Argument, ...]:
    """`.cleaned`: while it is written and put in its place; `.swap`: once it counts, also in the
    start after that."""
    suffix = draw.chance.choice((".cleaned", ".log.swap"))
    blow = draw.chance.choice(COMPACTION_BLOWS)
    return (draw.broker, suffix, blow, draw.chance.randint(1, 16))


def _flip_at_rest(draw: Draw) -> tuple[Argument, ...]:
    kind = draw.chance.choice(tuple(FILES))
    return (draw.broker, kind, draw.chance.choice(("kill", "stop")))


COMPACTION_BLOWS = ("kill", "power")
LOST_ON_THE_WAY = (REQUESTS, RESPONSES)

ADDED: dict[str, Arguments] = {
    "strike_compaction": _strike_compaction,
    "cancel_moves": lambda d: (d.topic, d.us(500, 5_000)),
    "allow_unclean": lambda d: (d.topic, d.chance.choice(("true", "true", "false"))),
    "flip_bit_at_rest": _flip_at_rest,
    "strand_leader": lambda d: (
        d.chance.randrange(4),
        d.chance.choice(("freeze", "freeze", "isolate", "isolate", "down")),
        8_000_000,
        d.us(2_500, 6_000),
    ),
    "lose_node": lambda d: (d.chance.randrange(4), d.us(300, 9_000)),
    "lose_controller_power": lambda d: (d.controller, d.us(300, 9_000)),
    "part_leading_from_store": lambda d: (d.chance.choice(LOST_ON_THE_WAY), d.us(300, 9_000)),
    "part_from_store": lambda d: (
        d.controller,
        d.chance.choice(LOST_ON_THE_WAY),
        d.us(300, 9_000),
    ),
    "slow_moves": lambda d: (d.chance.choice((500, 2_000, 8_000)), d.us(3_000, 10_000)),
}

OPTIONAL_FAULTS: dict[str, dict[str, int]] = {
    SPARE_BROKERS: {
        "move_partition": 6,
        "cancel_moves": 3,
        "slow_moves": 3,
        "grow_topic": 1,
        "kill_leader": 2,
        "keep_down": 1,
    },
    UNCLEAN_ELECTIONS: {"strand_leader": 3, "slow_followers": 2},
    # Followers that are away for longer than records are kept; crashes around a roll.
    SMALL_SEGMENTS: {"keep_down": 2, "kill_broker_in_call": 2, "lose_power_in_call": 2},
    FLIPS_AT_REST: {"flip_bit_at_rest": 6},
    RESTING: {"clock_rate": 4, "kill_leader": 4, "freeze_leader": 2, "slow_followers": 3},
    # Wall clocks jump, and records are of one that does not.
    OLD_RECORDS: {
        "clock_jump": 4,
        "slow_followers": 6,
        "deafen_leader": 2,
        "kill_leader": 2,
        "keep_down": 2,
        "kill_broker_in_call": 2,
    },
    COMPACTED: {
        "strike_compaction": 8,
        "slow_followers": 4,
        "kill_leader": 3,
        "keep_down": 2,
        "move_partition": 3,
    },
    COMPACTED_FLIPS: {"flip_bit": 9, "strike_compaction": 1, "kill_leader": 1},
    CONTROLLERS_CUT_OFF: {
        "part_leading_from_store": 3,
        "part_from_store": 2,
        "lose_node": 1,
        "lose_controller_power": 2,
        "kill_leader": 4,
        "freeze_leader": 2,
    },
    UNCLEAN_LATER: {"allow_unclean": 4, "strand_leader": 3},
}
