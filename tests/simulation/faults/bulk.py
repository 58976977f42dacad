"""Create and delete topics in bulk while controllers are busy, and check what this work delays.

Work takes virtual time in this profile only (costs.py). No process fails in it, so no broker may be
fenced and no Lease may be lost, however long an event loop iteration takes.
"""

from typing import Any

from tests.simulation.engine.costs import Costs
from tests.simulation.engine.simulated_cluster import Cluster
from tests.simulation.faults.fault_plan import Arguments
from tests.simulation.faults.faults import fault


@fault
def make_bulk(cluster: Cluster, topics: int, partitions: int, for_us: int) -> None:
    """So many topics are applied at once, and deleted together."""
    name = f"bulk-{len(cluster.topics)}"
    desired_topics = [
        cluster.create_topic(f"{name}-{number}", partitions=partitions, replication_factor=3)
        for number in range(topics)
    ]

    def delete() -> None:
        for desired_topic in desired_topics:
            desired_topic.is_deleted = True

    cluster.timeline.after(for_us, delete)


@fault
def starve_controller(cluster: Cluster, turns: int, turn_us: int, apart_us: int) -> None:
    """Its loop has work for long turns, one soon after the other; its threads go on."""
    slot = cluster.leading_controller
    if slot is None or slot.process is None:
        return
    loop = slot.process.loop

    def starve(left: int) -> None:
        if left and not loop.is_dead and not cluster.is_healed:
            loop.block_until(cluster.now_us + turn_us)
            cluster.timeline.after(turn_us + apart_us, starve, left - 1)

    starve(turns)


BULK = "topics come in bulk"

BULK_FAULTS: dict[str, Arguments] = {
    "make_bulk": lambda d: (*d.chance.choice(((1, 32), (3, 10), (8, 3))), d.us(1_000, 4_000)),
    # Longer than a session and than a Lease, or a series of shorter ones.
    "starve_controller": lambda d: d.chance.choice(
        ((1, d.us(3_500, 5_000), 0), (20, d.us(150, 400), d.us(1, 5)))
    ),
}
BULK_PROFILES: dict[str, dict[str, int]] = {BULK: {"make_bulk": 2, "starve_controller": 2}}
BULK_SHAPES: dict[str, dict[str, Any]] = {BULK: {"costs": Costs()}}
BULK_SECONDS = {BULK: 8.0}
