"""What a share of the ordinary seeds has beside its faults: a wider world, and faults that need it.

`ADDITIONS` are kinds and how often at most, as the weathers of storms.py, and can be asked for like
these. They are no kinds of every seed's swarm: that would change what each seed brings.
"""

from tests.simulator.fault_plan import Arguments
from tests.simulator.faults import fault
from tests.simulator.world import World

SPARE_BROKERS = "brokers to spare"


@fault
def cancel_moves(world: World, topic: str) -> None:
    """The user asks for the brokers that each partition had."""
    for wish in world.topics:
        if wish.topic == topic and wish.is_wanted:
            wish.is_cancelling = True


@fault
def slow_moves(world: World, bytes_per_second: int, for_us: int) -> None:
    """moveBytesPerSecond of the pool: a move takes long enough for something to happen in it."""
    world.move_bytes_per_second = bytes_per_second
    world.timeline.after(for_us, setattr, world, "move_bytes_per_second", 0)


ADDED: dict[str, Arguments] = {
    "cancel_moves": lambda d: (d.topic,),
    "slow_moves": lambda d: (d.chance.choice((500, 2_000, 8_000)), d.us(1_000, 8_000)),
}

ADDITIONS: dict[str, dict[str, int]] = {
    SPARE_BROKERS: {
        "move_partition": 6,
        "cancel_moves": 3,
        "slow_moves": 3,
        "kill_leader": 2,
        "keep_down": 1,
    },
}
