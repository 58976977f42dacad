"""What a share of the ordinary seeds has beside its faults: a wider world, and faults that need it.

`ADDITIONS` are kinds and how often at most, as the weathers of storms.py, and can be asked for like
these. They are no kinds of every seed's swarm: that would change what each seed brings.
"""

from tidemark_operator.controller.reassignment import is_moving

from tests.simulator.fault_plan import Arguments
from tests.simulator.faults import fault
from tests.simulator.topic_wishes import TopicWish
from tests.simulator.world import World

LOOK_EVERY_US = 50_000
SPARE_BROKERS = "brokers to spare"


@fault
def cancel_moves(world: World, topic: str, wait_us: int) -> None:
    """As soon as one is under way the user asks for the brokers that each partition had."""
    ends_us = world.now_us + wait_us

    def look() -> None:
        if world.is_healed or world.now_us >= ends_us:
            return
        for wish in world.topics:
            if wish.topic == topic and wish.is_wanted and _is_moving(world, wish):
                wish.is_cancelling = True
                return
        world.timeline.after(LOOK_EVERY_US, look)

    look()


def _is_moving(world: World, wish: TopicWish) -> bool:
    slot = world.leading_controller
    if slot is None or slot.service is None or world.pool not in slot.service.pools():
        return False
    view = slot.service.topic(world.pool, wish.topic_id)
    return view is not None and any(is_moving(state) for state in view.partitions)


@fault
def slow_moves(world: World, bytes_per_second: int, for_us: int) -> None:
    """moveBytesPerSecond of the pool: a move takes long enough for something to happen in it."""
    world.move_bytes_per_second = bytes_per_second
    world.timeline.after(for_us, setattr, world, "move_bytes_per_second", 0)


ADDED: dict[str, Arguments] = {
    "cancel_moves": lambda d: (d.topic, d.us(500, 5_000)),
    "slow_moves": lambda d: (d.chance.choice((500, 2_000, 8_000)), d.us(3_000, 10_000)),
}

ADDITIONS: dict[str, dict[str, int]] = {
    SPARE_BROKERS: {
        "move_partition": 6,
        "cancel_moves": 3,
        "slow_moves": 3,
        "grow_topic": 1,
        "kill_leader": 2,
        "keep_down": 1,
    },
}
