"""Which faults a seed brings: each kind that a run has at all comes at a rate of its own.

Runs differ in which kinds they have (swarm testing): a run with everything hides what a run with
two kinds shows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.simulation.engine.clock import MILLION
from tests.simulation.faults import operator_errors  # noqa: F401  registers its faults
from tests.simulation.faults.faults import Argument, Fault

SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class PlanShape:
    """Between which moments, and of which world."""

    brokers: int
    controllers: int
    topics: tuple[str, ...] = ("orders",)
    first_us: int = 2 * SECOND_US
    last_us: int = 12 * SECOND_US
    kinds_wanted: int = 5  # about so many kinds in one run
    most_per_run: int = 6  # of one kind, about
    operator_errors: tuple[str, ...] = ()  # of MISTAKES, as one more kind each


class Draw:
    """Arguments of faults."""

    def __init__(self, chance: Random, shape: PlanShape) -> None:
        self.chance = chance
        self.shape = shape

    @property
    def broker(self) -> int:
        return self.chance.randrange(self.shape.brokers)

    @property
    def controller(self) -> int:
        return self.chance.randrange(self.shape.controllers)

    @property
    def machine(self) -> int:
        return self.chance.randrange(self.shape.brokers + self.shape.controllers)

    @property
    def machine_name(self) -> str:
        number = self.machine
        brokers = self.shape.brokers
        return f"node-{number}" if number < brokers else f"controller-{number - brokers}"

    @property
    def topic(self) -> str:
        return self.chance.choice(self.shape.topics)

    @property
    def calls(self) -> int:
        return self.chance.randint(1, 40)

    def us(self, least_ms: int, most_ms: int) -> int:
        """Short ones as likely as long ones: by orders of magnitude."""
        ratio = most_ms / least_ms
        return round(1000 * least_ms * math.pow(ratio, self.chance.random()))

    def rate(self, most: float) -> float:
        return round(most * self.chance.random(), 3)


Arguments = Callable[[Draw], tuple[Argument, ...]]

KINDS: dict[str, Arguments] = {
    "kill_broker": lambda d: (d.broker,),
    "kill_broker_in_call": lambda d: (d.broker, d.calls),
    "freeze_broker": lambda d: (d.broker, d.us(50, 8_000)),
    "stutter_broker": lambda d: (d.broker, d.us(1, 500), d.us(500, 6_000)),
    "stop_broker": lambda d: (d.broker, d.us(200, 4_000)),
    "roll_brokers": lambda d: (d.us(300, 4_000),),
    "delete_pod_by_force": lambda d: (d.broker, d.us(100, 4_000)),
    "lose_power": lambda d: (d.broker, d.us(200, 5_000)),
    "lose_power_in_call": lambda d: (d.broker, d.calls, d.us(200, 5_000)),
    "lose_all_power": lambda d: (d.us(200, 2_000),),
    "clock_rate": lambda d: (
        d.machine,
        MILLION + d.chance.randint(-300_000, 300_000),
        d.us(500, 8_000),
    ),
    "clock_jump": lambda d: (d.machine, d.chance.choice((-1, 1)) * d.us(100, 3_600_000)),
    "flip_bit": lambda d: (d.broker,),
    "slow_disk": lambda d: (d.broker, d.us(1, 500), d.us(200, 5_000)),
    "full_disk": lambda d: (d.broker, d.chance.randint(0, 20_000), d.us(200, 4_000)),
    "fail_disk": lambda d: (d.broker, d.chance.choice(("read", "write", "sync")), 1),
    "lose_write_back": lambda d: (d.broker,),
    "block_link": lambda d: (d.machine_name, d.machine_name, d.us(50, 8_000)),
    "isolate": lambda d: (
        d.machine_name,
        d.chance.choice(("in", "out", "both")),
        d.us(50, 8_000),
    ),
    "slow_link": lambda d: (d.machine_name, d.machine_name, d.us(1, 1_000), d.us(500, 8_000)),
    "reset_connections": lambda d: (d.machine_name,),
    "bad_messages": lambda d: (
        d.rate(0.2),
        d.rate(0.2),
        d.rate(0.3),
        d.rate(0.2),
        d.us(500, 8_000),
    ),
    "kill_controller": lambda d: (d.controller,),
    "stop_controller": lambda d: (d.controller,),
    "freeze_controller": lambda d: (d.controller, d.us(200, 9_000)),
    "api_outage": lambda d: (d.us(100, 6_000),),
    "bad_store": lambda d: (
        d.rate(0.3),
        d.rate(0.2),
        d.rate(0.3),
        d.us(5, 800),
        d.us(500, 8_000),
    ),
    "configure_topic": lambda d: (
        d.topic,
        *d.chance.choice(
            (
                ("min.insync.replicas", "1"),
                ("min.insync.replicas", "2"),
                ("min.insync.replicas", "3"),
                ("replica.lag.time.max.ms", "500"),
                ("replica.lag.time.max.ms", "10000"),
            )
        ),
    ),
    "recreate_topic": lambda d: (d.topic,),
    "grow_topic": lambda d: (d.topic,),
    "move_partition": lambda d: (d.topic, d.chance.randrange(4), d.broker),
    "retain_topic": lambda d: (d.topic, d.us(200, 4_000)),
}

OPERATOR_ERRORS: dict[str, Arguments] = {
    "lose_volume": lambda d: (d.broker,),
    "snapshot_volume": lambda d: (d.broker,),
    "restore_volume": lambda d: (d.broker,),
    "lose_replica": lambda d: (d.broker, d.chance.randrange(4)),
    "delete_lease": lambda d: (),
    "delete_slice": lambda d: (),
    "lose_slice": lambda d: (d.us(300, 4_000),),
    "back_up_slices": lambda d: (),
    "restore_slices": lambda d: (),
}


def draw_plan(seed: int, shape: PlanShape) -> tuple[Fault, ...]:
    """In order of time. Drawn from a stream of its own: the world's stays the same."""
    chance = Random(f"faults of {seed}")
    draw = Draw(chance, shape)
    faults: list[Fault] = []
    for kind in (*KINDS, *shape.operator_errors):
        if kind in KINDS and chance.random() >= shape.kinds_wanted / len(KINDS):
            continue
        arguments = KINDS.get(kind) or OPERATOR_ERRORS[kind]
        for _ in range(chance.randint(1, shape.most_per_run)):
            at_us = chance.randint(shape.first_us, shape.last_us)
            faults.append(Fault(at_us, kind, arguments(draw)))
    return tuple(sorted(faults, key=lambda fault: fault.at_us))
